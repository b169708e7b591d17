"""Servers whose drafter is never right, whose queue grows, or which do not answer."""

from tests.telemetry.diagnosis_samples import JOB, Watch, codes, engine, job, server

SILENT = engine(
    running_requests=None,
    queued_requests=None,
    prefill_tokens_per_s=None,
    decode_tokens_per_s=None,
    cache_usage=None,
    acceptance_length=None,
    acceptance_rate=None,
    is_answering=False,
)


def test_low_acceptance_is_told_after_a_minute_of_decoding():
    low = engine(acceptance_length=1.04, acceptance_rate=0.01)
    watch = Watch()
    watch.show(60, engines=[engine()], jobs=[server()])
    assert watch.show_until_told("low_acceptance", 90, engines=[low], jobs=[server()]) >= 60
    told = watch.only("low_acceptance")
    assert told.subject == JOB
    assert "1.04" in told.evidence
    assert "layer ids" in told.advice


def test_time_without_traffic_does_not_count():
    low = engine(acceptance_length=1.04)
    rests = engine(acceptance_length=1.04, decode_tokens_per_s=0.0)
    watch = Watch()
    watch.show(30, engines=[low])
    assert watch.show(900, engines=[rests]) == []
    assert watch.show(20, engines=[low]) == []
    watch.show(15, engines=[low])
    assert codes(watch.told) == ["low_acceptance"]
    watch.show(200, engines=[rests])
    assert codes(watch.told) == ["low_acceptance"]
    assert watch.show(200, engines=[rests]) == []


def test_fair_acceptance_and_a_server_without_a_drafter_are_not_told():
    for fair in (engine(acceptance_length=1.3), engine(acceptance_length=None, acceptance_rate=None)):
        assert Watch().show(300, engines=[fair]) == []


def test_a_request_that_goes_badly_now_and_then_is_not_told_and_one_that_goes_well_hides_nothing():
    fair = lambda second: {"engines": [engine(acceptance_length=1.0 if second % 4 == 0 else 1.6)]}  # noqa: E731
    poor = lambda second: {"engines": [engine(acceptance_length=1.3 if second % 10 == 0 else 1.05)]}  # noqa: E731
    assert Watch().show(300, fair) == []
    assert codes(Watch().show(90, poor)) == ["low_acceptance"]


def test_an_evaluation_is_told_where_its_server_does_not_say():
    arm = job("run-a-evaluation", agent="evaluation", activity="evaluate", acceptance_length=1.1)
    watch = Watch()
    watch.show(70, jobs=[arm])
    assert watch.only("low_acceptance").subject == "run-a-evaluation"
    told = Watch().show(70, jobs=[arm, server()], engines=[engine(acceptance_length=1.1)])
    assert [one.subject for one in told] == [JOB]


def test_a_queue_that_rises_for_two_minutes_without_more_tokens_is_told():
    rising = lambda second: {"engines": [engine(queued_requests=int(second / 4))]}  # noqa: E731
    watch = Watch()
    assert 100 <= watch.show_until_told("queue_growing", 150, rising) <= 135
    assert "requests wait" in watch.only("queue_growing").evidence
    assert watch.show(240, engines=[engine()]) == []


def test_a_burst_a_full_queue_and_a_growing_server_are_not_told():
    burst = lambda second: {"engines": [engine(queued_requests=max(0, 400 - int(second)))]}  # noqa: E731
    full = lambda second: {"engines": [engine(queued_requests=64)]}  # noqa: E731
    warms = lambda second: {  # noqa: E731
        "engines": [engine(queued_requests=int(second / 4), decode_tokens_per_s=20.0 * second)]
    }
    saw = lambda second: {"engines": [engine(queued_requests=int(second) % 40)]}  # noqa: E731
    for make in (burst, full, warms, saw):
        assert Watch().show(200, make) == []


def test_a_server_that_does_not_answer_is_told_after_half_a_minute():
    watch = Watch()
    watch.show(10, engines=[engine()], jobs=[server()])
    assert watch.show(29, engines=[SILENT], jobs=[server()]) == []
    watch.show(3, engines=[SILENT], jobs=[server()])
    assert watch.only("engine_silent").severity == "error"
    assert watch.show(5, engines=[engine()], jobs=[server()]) == []


def test_a_server_whose_engine_was_launched_again_is_told_with_the_reason_for_half_an_hour():
    died = server(
        restarts=2,
        restarted_age_s=61.0,
        restarted_because="while it was serving, the engine ended with signal 9. It said last:\nGoodbye",
    )
    watch = Watch()
    watch.show(2, jobs=[died])
    told = watch.only("server_restarted")
    assert told.severity == "warning"
    assert told.evidence.startswith("2 times, last 61 s ago")
    assert told.evidence.endswith("while it was serving, the engine ended with signal 9")
    assert Watch().show(2, jobs=[server(restarts=2, restarted_age_s=1801.0, restarted_because="x")]) == []


def test_a_server_that_answers_now_and_then_or_stops_is_not_silent():
    hiccups = lambda second: {"engines": [SILENT if second % 20 else engine()]}  # noqa: E731
    assert Watch().show(200, hiccups, jobs=[server()]) == []
    assert Watch().show(200, engines=[SILENT], jobs=[server(activity="stop")]) == []
