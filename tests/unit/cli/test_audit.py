"""The audit's judgement on hand-made fates."""

from collections import Counter

from services.cli.demo.audit import Fates, judge


def well() -> Fates:
    fates = Fates()
    fates.submitted = {"trained", "dropped", "revoked", "waiting"}
    fates.evaluations = {"held-out"}
    fates.admitted = {"trained", "dropped", "revoked", "held-out"}
    fates.revoked = {"revoked"}
    done = ["trained", "dropped", "held-out"]
    fates.finished, fates.ended, fates.sealed, fates.scored = set(done), Counter(done), Counter(done), Counter(done)
    fates.trained, fates.dropped = Counter(["trained"]), Counter(["dropped"])
    return fates


def test_a_run_in_order():
    found = judge(well())
    assert (found.submitted, found.evaluations, found.trained, found.dropped, found.unused) == (4, 1, 1, 1, 2)
    assert found.lost == {} and found.duplicated == {}


def test_each_broken_hand_over_is_named():
    fates = well()
    fates.admitted.add("waiting")
    del fates.sealed["dropped"]
    del fates.scored["held-out"]
    fates.trained.clear()
    assert judge(fates).lost == {
        "waiting": "admitted, never ended",
        "dropped": "ended, never sealed",
        "held-out": "finished, never scored",
        "trained": "scored, neither trained nor dropped",
    }


def test_whatever_happens_twice_is_named():
    fates = well()
    fates.trained["trained"] = 2
    fates.scored["dropped"] = 2
    fates.trained["held-out"] = 1
    assert judge(fates).duplicated == {
        "trained": "trained more than once",
        "dropped": "scored more than once",
        "held-out": "an evaluation, trained",
    }
    fates = well()
    fates.dropped["trained"] = 1
    assert judge(fates).duplicated == {"trained": "trained and dropped"}
