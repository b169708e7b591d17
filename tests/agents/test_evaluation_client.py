"""The client beside servers that answer as SGLang 0.5.23 and vLLM 0.32 did."""

from collections.abc import Iterator

import pytest

from remote.agents.evaluation.client import EngineClient
from remote.errors import WorkFailed
from tests.agents.played_server import ENGINES, VLLM_STREAM, Server, playing


@pytest.fixture
def server() -> Iterator[Server]:
    with playing({}) as listening:
        yield listening


@pytest.fixture(params=ENGINES)
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[EngineClient]:
    server.answers = ENGINES[request.param]
    client = EngineClient(f"http://127.0.0.1:{server.server_port}")
    yield client
    assert client.engine == request.param
    client.close()


def test_an_answer_is_the_same_from_either_engine(client: EngineClient):
    completion = client.complete([1, 2], 3)
    assert (completion.output_ids, completion.text, completion.verify_calls) == ([5, 6, 7], "A b c", 1)
    assert completion.accepted_drafts == [0, 1, 0]
    assert 0 < completion.time_to_first_token_s <= completion.end_to_end_s


def test_what_is_asked_is_greedy_and_goes_in_as_tokens(client: EngineClient, server: Server):
    client.complete([1, 2], 3)
    (body,) = server.asked
    flat = body | body.get("sampling_params", {})
    assert flat["temperature"] == 0
    assert [1, 2] in body.values()
    assert 3 in flat.values()


def test_the_gap_is_between_the_likeliest_two_in_their_order(client: EngineClient):
    assert client.top_two_gap([1, 2]) == 1.25


def test_either_engine_tells_its_version(client: EngineClient):
    assert client.server_info()["version"] in ("0.5.23", "0.32.0")


def test_an_answer_without_tokens_is_a_failure(server: Server):
    for answers in (
        {"/server_info": {}, "/generate": [{"error": {"message": "no"}}]},
        {"/version": {}, "/v1/completions": [{"error": {"message": "no"}}]},
        {"/version": {}, "/v1/completions": []},
    ):
        server.answers = answers
        client = EngineClient(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(WorkFailed, match="without tokens"):
            client.complete([1], 1)
        client.close()


def test_a_server_of_another_kind_is_named(server: Server):
    server.answers = {"/": {}}
    client = EngineClient(f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(WorkFailed, match="neither SGLang nor vLLM"):
        client.complete([1], 1)
    client.close()


def test_without_a_drafter_nothing_is_verified(server: Server):
    server.answers = {"/version": {}, "/v1/completions": VLLM_STREAM[:2]}
    client = EngineClient(f"http://127.0.0.1:{server.server_port}")
    assert client.complete([1], 3).verify_calls is None
    client.close()


def test_a_server_that_is_gone_or_talks_nonsense_is_a_failure_in_words(server: Server):
    url = f"http://127.0.0.1:{server.server_port}"
    server.answers = {"/server_info": [1], "/generate": {}}
    client = EngineClient(url)
    assert client.engine == "sglang"
    with pytest.raises(WorkFailed, match="answered /server_info with 200 'data: 1"):
        client.server_info()
    server.answers = {}
    with pytest.raises(WorkFailed, match="answered /generate with 404"):
        client.top_two_gap([1])
    server.shutdown()
    server.server_close()
    for ask in (client.server_info, client.forget_prefixes, lambda: client.top_two_gap([1])):
        with pytest.raises(WorkFailed, match="did not answer /"):
            ask()
    client.close()
