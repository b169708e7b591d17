"""One instance of every message, with every optional field filled in: the source of the golden files."""

from remote.protocol import (
    benchmark,
    bulk,
    errors,
    frames,
    jobs,
    progress,
    reports,
    requests,
    run,
    secrets,
    specs,
    storage,
    telemetry,
)
from remote.protocol.base import Message

JOB_ID = "training-260718-101500-ab12"
OP_ID = "0123456789abcdef"
T0 = 1_784_367_300.25

ENGINE = run.EngineConfig(
    python="/opt/engine/bin/python",
    device="cpu",
    dtype="float32",
    attention_backend="torch_native",
    tensor_parallel_size=1,
    memory_fraction=0.5,
    context_length=2048,
    max_running_requests=4,
    flags={"disable-overlap-schedule": True, "stop-words": ["a", "b"], "watchdog": 60},
    environment={"OMP_NUM_THREADS": "2"},
    ready_timeout_s=600.0,
)
EXTRACTION = run.ExtractionConfig(layer_ids=[2, 15, 27], concurrency=4, shard_bytes=1 << 20)
VOCABULARY = run.VocabularyConfig(draft_vocab_size=32000, source="/data/mapping", minimum_coverage=0.9)
TRAINING = run.TrainingConfig(drafter=run.DrafterConfig(head_dim=64), steps=100, threads=2, device="cpu")
SPECULATION = run.SpeculationConfig(num_steps=3, top_k=1, draft_tokens=4)
EVALUATION = run.EvaluationConfig(concurrency=[1, 4], prompts=20, max_tokens=64, attention_backend="torch_native")
RUN = run.RunConfig(
    name="embedded",
    target=run.TargetConfig(model="models/target", revision="main"),
    data=run.DataConfig(train="train.jsonl", evaluation="eval.jsonl", max_samples=64, max_length=512),
    engine=ENGINE,
    extraction=EXTRACTION,
    vocabulary=VOCABULARY,
    training=TRAINING,
    directory="runs/embedded",
    speculation=SPECULATION,
    evaluation=EVALUATION,
    verdict=run.VerdictConfig(concurrency=[1], minimum_speedup=1.05, minimum_acceptance_length=1.4),
)
CAPTURE = specs.Capture(layer_ids=[2, 15, 27], spool_directory="/dev/shm/spool")
DRAFTER = specs.DrafterServing(
    model="/runs/embedded/drafter", speculation=SPECULATION, layer_ids=[2, 15, 27], mapping="/runs/embedded/mapping"
)
STORAGE_ENTRY = storage.StorageEntry(
    path="/data/roost/runs/old/mapping",
    kind="mapping",
    bytes=4096,
    files=6,
    modified_at=T0,
    used_by=[JOB_ID],
    kept_because="the draft vocabulary is small",
)
TRASH_ENTRY = storage.TrashEntry(
    name="261201-101500-old-1f2e",
    path="/data/roost/trash/261201-101500-old-1f2e",
    origin="/data/roost/runs/old",
    bytes=1 << 40,
    files=512,
    trashed_at=T0,
    trashed_by="cli",
)
KEPT = storage.KeptItem(path="/data/roost/runs/old/mapping", reason="the draft vocabulary is small")
PURGE = specs.PurgeSpec(entries=["/data/roost/trash/261201-101500-old-1f2e"])
MAPPING_COPY = specs.MappingCopySpec(source="/data/mapping", destination="/data/copy", replace=True)
SERVER = specs.ServerSpec(model="/models/target", engine=ENGINE, capture=CAPTURE, drafter=DRAFTER)
BENCHMARK = specs.BenchmarkSpec(
    url="http://127.0.0.1:30000",
    server_job_id="server-260718-101400-cd34",
    server=SERVER,
    prompts="/data/eval.jsonl",
    benchmark=run.BenchmarkConfig(concurrency=[1, 8], prompts=20, repeats=2, max_tokens=64, warmup_prompts=1),
)
SPECS = [
    SERVER,
    specs.ExtractionSpec(
        url="http://127.0.0.1:30000",
        capture=CAPTURE,
        target_model="/models/target",
        conversations="/data/train.jsonl",
        store="/runs/embedded/store",
        extraction=EXTRACTION,
        max_length=512,
        fingerprint="f" * 64,
        max_samples=64,
    ),
    specs.VocabularySpec(
        store="/runs/embedded/store",
        target_model="/models/target",
        mapping="/runs/embedded/mapping",
        vocabulary=VOCABULARY,
        fingerprint="f" * 64,
    ),
    MAPPING_COPY,
    specs.TrainingSpec(
        store="/runs/embedded/store",
        mapping="/runs/embedded/mapping",
        target_model="/models/target",
        drafter="/runs/embedded/drafter",
        checkpoints="/runs/embedded/checkpoints",
        training=TRAINING,
        fingerprint="f" * 64,
    ),
    specs.EvaluationSpec(
        arm="drafter",
        url="http://127.0.0.1:30000",
        target_model="/models/target",
        prompts="/data/eval.jsonl",
        report="/runs/embedded/evaluation-drafter",
        evaluation=EVALUATION,
        fingerprint="f" * 64,
        reference="/runs/embedded/evaluation-baseline",
        drafter="/runs/embedded/drafter",
    ),
    specs.RunSpec(run=RUN),
    BENCHMARK,
    PURGE,
    specs.RecorderSpec(idle_exit_s=900.0),
    specs.RehearsalSpec(gpus=8, steps=3600, step_s=1.0, stands_after=12),
]

STAGE_STATES = [
    progress.StagePending(bytes_to_write=1 << 30),
    progress.StageRunning(since=T0, job_id=JOB_ID, fraction=0.25, eta_s=90.0, detail="step 25 of 100"),
    progress.StageDone(started_at=T0, ended_at=T0 + 60, detail="100 steps"),
    progress.StageSkipped(detail="a valid store for the same inputs is there"),
    progress.StageFailed(started_at=T0, ended_at=T0 + 60, reason="the disk is full"),
]
STEP = progress.StepLogged(
    step=10,
    total_steps=100,
    loss=3.25,
    accuracy=[0.5, 0.375, 0.25],
    learning_rate=1e-4,
    gradient_norm=0.75,
    tokens_per_s=1024.0,
    input_wait_fraction=0.0625,
)
EVENTS = [
    progress.TrainingPhase(phase="checkpoint"),
    progress.FilesRemoved(files_done=3, files_total=9, bytes_freed=4096),
    progress.StageChanged(stage="training", state=STAGE_STATES[1]),
    progress.ServerPhase(phase="loading_weights", elapsed_s=12.5),
    progress.ServerReady(
        url="http://127.0.0.1:30000",
        engine="sglang",
        engine_version="0.5.23",
        model="/models/target",
        pid=4242,
        startup_s=31.5,
    ),
    progress.ExtractionAdvanced(
        samples_done=10,
        samples_total=64,
        tokens_done=4096,
        bytes_written=1 << 22,
        tokens_per_s=512.0,
        bytes_pending=1 << 20,
    ),
    progress.ShardWritten(shard="shard-00000.safetensors", samples=10, tokens=4096, bytes=1 << 22),
    progress.MappingBuilt(draft_vocab_size=32000, target_vocab_size=163840, coverage=0.96875),
    progress.FilesCopied(bytes_done=256128, bytes_total=843006),
    STEP,
    progress.CheckpointSaved(step=100, path="/runs/embedded/checkpoints/step-100", bytes=1 << 24),
    progress.ArmAdvanced(
        arm="drafter",
        prompts_done=5,
        prompts_total=20,
        decode_tokens_per_s=48.5,
        acceptance_length=1.75,
        concurrency=4,
    ),
    progress.BenchmarkAdvanced(concurrency=4, requests_done=5, requests_total=60, output_tokens_per_s=48.5),
    progress.Note(level="warning", text="the learning rate was lowered"),
]
RECORD = progress.ProgressRecord(seq=7, at=T0, event=STEP)

STATES = [
    jobs.Queued(since=T0),
    jobs.Starting(since=T0),
    jobs.Running(since=T0, pid=4242),
    jobs.Stalled(since=T0, pid=4242, heartbeat_age_s=40.0),
    jobs.Paused(since=T0, pid=4242, reason="the disk is full"),
    jobs.Stopping(since=T0, pid=4242, requested_by="ann", reason="wrong data"),
    jobs.Finished(
        started_at=T0,
        ended_at=T0 + 60,
        outcome="stopped",
        exit_code=None,
        signal=15,
        reason="stopped by ann: wrong data",
    ),
    jobs.Lost(since=T0, reason="the host was restarted"),
    jobs.Orphaned(since=T0, pid=4242),
    jobs.Foreign(since=T0, incarnation="boot:4026531836:22"),
    jobs.Unkillable(since=T0, pids=[4242, 4243]),
    jobs.Quarantined(reason="state.json is version 2, this release reads up to 1"),
]
ARTIFACT = jobs.ArtifactRef(kind="drafter", path="/runs/embedded/drafter", manifest_sha256="a" * 64)
RESULT = jobs.JobResult(
    outputs=[ARTIFACT], summary={"loss": 2.5, "steps": 100, "device": "cpu", "best": None, "ok": True}
)
JOB = jobs.Job(
    job_id=JOB_ID,
    agent="training",
    state=STATES[2],
    revision=3,
    created_at=T0,
    created_by="ann",
    command=["/opt/python", "-m", "remote.agents.training.worker"],
    spec=SPECS[4],
    run_id="run-260718-101400-cd34",
    gpus=[0, 1],
    log_start=4096,
    log_size=8192,
    last_line="step 10 — loss 3.25",
    progress_seq=7,
    last_progress=RECORD,
    result=RESULT,
)

FINDING = reports.Finding(
    code="not_sorted", severity="error", message="d2t is not ascending at 17", fix="Build the mapping again."
)
MAPPED_FILE = reports.MappedFile(name="d2t.npy", bytes=256128, sha256="b" * 64)
MAPPING_REPORT = reports.MappingReport(
    path="/data/mapping",
    valid=False,
    findings=[FINDING],
    files=[MAPPED_FILE],
    draft_vocab_size=32000,
    target_vocab_size=163840,
    coverage=0.96875,
    provenance="foreign",
)
PROMPT = reports.PromptResult(
    prompt_id="p-1",
    category="writing",
    input_tokens=12,
    output_ids=[1, 2, 3],
    output_text="Grüße",
    time_to_first_token_s=0.125,
    end_to_end_s=1.125,
    decode_tokens_per_s=2.0,
    verify_calls=2,
    acceptance_length=1.5,
    accepted_drafts=[1, 1],
)
DIVERGENCE = reports.Divergence(
    concurrency=1,
    prompt_id="p-1",
    position=2,
    token_baseline=3,
    token_drafter=4,
    top_two_logit_gap=0.0005,
    near_tie=True,
)
ARM_LEVEL = reports.ArmLevel(
    concurrency=1,
    prompts=[PROMPT],
    seconds=1.25,
    decode_tokens_per_s=48.5,
    end_to_end_tokens_per_s=40.0,
    output_tokens_per_s=38.0,
    acceptance_length=1.75,
)
EVALUATION_REPORT = reports.EvaluationReport(
    arm="drafter",
    model="/models/target",
    drafter="/runs/embedded/drafter",
    engine="sglang",
    engine_version="0.5.23",
    dtype="float32",
    attention_backend="torch_native",
    host_name="gpu-host",
    devices=["8 x NVIDIA RTX PRO 6000"],
    measured_at=T0,
    levels=[ARM_LEVEL],
    compared_outputs=1,
    divergences=[DIVERGENCE],
    fingerprint="f" * 64,
)
LEVEL_VERDICT = reports.LevelVerdict(
    concurrency=1,
    counts=True,
    decision="reject",
    baseline_tokens_per_s=50.0,
    drafter_tokens_per_s=48.5,
    speedup=0.97,
    speedup_interval=(0.95, 0.99),
    baseline_output_tokens_per_s=45.0,
    drafter_output_tokens_per_s=44.0,
    baseline_first_token_s=0.125,
    drafter_first_token_s=0.25,
    acceptance_length=1.75,
    step_cost=1.8,
)
CATEGORY = reports.CategoryAcceptance(category="writing", prompts=10, verifications=320, acceptance_length=1.75)
CAUSE = reports.Cause(cause="coverage", suspect=True, text="the draft vocabulary covers 60.0% of the answers' tokens")
ARM_SERVER = reports.ArmServer(
    arm="drafter",
    measured_at=T0,
    command=["/opt/python", "-m", "sglang.launch_server", "--port", "0"],
    environment={"NCCL_P2P_LEVEL": "SYS"},
)
PROVENANCE = reports.Provenance(
    run="embedded",
    host_name="gpu-host",
    devices=["8 x NVIDIA RTX PRO 6000"],
    judged_at=T0,
    release="d" * 64,
    model="/models/target",
    model_fingerprint="a" * 64,
    drafter="/runs/embedded/drafter",
    drafter_sha256="b" * 64,
    mapping_sha256="c" * 64,
    train="/data/train.jsonl",
    train_sha256="d" * 64,
    evaluation="/data/eval.jsonl",
    evaluation_sha256=None,
    max_tokens=64,
    servers=[ARM_SERVER],
)
VERDICT = reports.VerdictReport(
    decision="reject",
    baseline_tokens_per_s=50.0,
    drafter_tokens_per_s=48.5,
    speedup=0.97,
    speedup_interval=(0.95, 0.99),
    acceptance_length=1.75,
    coverage=0.96875,
    prompts=20,
    identical_outputs=19,
    near_ties=1,
    real_divergences=0,
    dtype="float32",
    attention_backend="torch_native",
    engine="sglang 0.5.23",
    reasons=["slower than without the drafter"],
    advice=["Train longer."],
    levels=[LEVEL_VERDICT],
    categories=[CATEGORY],
    position_acceptance=[0.5, 0.25],
    divergences=[DIVERGENCE],
    causes=[CAUSE],
    provenance=PROVENANCE,
)
STAGE_PLAN = reports.StagePlan(
    stage="extraction",
    action="run",
    reason="no store yet",
    command=["/opt/python", "-m", "remote.agents.extraction.worker"],
    output="/runs/embedded/store",
    bytes_needed=1 << 30,
    seconds=240.0,
    environment={"OMP_NUM_THREADS": "1"},
)
RUN_PLAN = reports.RunPlan(
    run=RUN,
    directory="/runs/embedded",
    stages=[STAGE_PLAN],
    bytes_needed=1 << 30,
    bytes_free=1 << 36,
    problems=["the conversations are not there"],
    fingerprint="c" * 64,
)

HOST_SAMPLE = telemetry.HostSample(
    cpu_utilization=[0.5, 0.25],
    cpu_model="A CPU",
    load_1m=1.5,
    memory_used_bytes=1 << 33,
    memory_total_bytes=1 << 34,
    shm_used_bytes=1 << 20,
    shm_total_bytes=1 << 33,
    network_rx_bytes_per_s=1000.0,
    network_tx_bytes_per_s=2000.0,
    disk_read_bytes_per_s=None,
    disk_write_bytes_per_s=3000.0,
)
GPU_HEALTH = telemetry.GpuHealth(
    sampled_at=T0 - 4,
    pcie_generation=5,
    pcie_generation_max=5,
    pcie_width=8,
    pcie_width_max=16,
    pcie_replays=3,
    ecc_corrected=12,
    ecc_uncorrected=0,
    remapped_rows_corrected=1,
    remapped_rows_uncorrected=0,
    remapping_pending=True,
    remapping_failed=False,
    recovery_action="reset",
    nvlinks_active=0,
    processes=[telemetry.GpuProcess(pid=4242, memory_bytes=1 << 36)],
)
GPU_EVENT = telemetry.GpuEvent(at=T0, gpu_index=0, xid=79, text="GPU has fallen off the bus", source="kernel_log")
GPU_TOPOLOGY = telemetry.GpuTopology(
    driver_version="580.95.05",
    cuda_version="13.0",
    paths=[telemetry.GpuPath(first=0, second=1, ancestor="host bridge", peer_to_peer="ok")],
    events_from="NVML; the kernel log may not be read here",
)
GPU_SAMPLE = telemetry.GpuSample(
    gpu_index=0,
    name="NVIDIA RTX PRO 6000",
    uuid="GPU-0000",
    gpu_utilization=0.75,
    memory_used_bytes=1 << 36,
    memory_total_bytes=96 << 30,
    power_watts=550.0,
    power_limit_watts=600.0,
    temperature_celsius=70.0,
    sm_clock_hz=2.6e9,
    throttle_reasons=["power_cap"],
    owner_job_id=JOB_ID,
    error="fell off the bus",
    sampled_at=T0 - 2,
    memory_utilization=0.5,
    temperature_margin_celsius=18.0,
    memory_clock_hz=1.4e10,
    energy_joules=123456.5,
    pcie_rx_bytes_per_s=1e9,
    pcie_tx_bytes_per_s=2e9,
    nvlink_rx_bytes_per_s=3e9,
    nvlink_tx_bytes_per_s=4e9,
    health=GPU_HEALTH,
)
MOUNT_SAMPLE = telemetry.MountSample(
    path="/",
    used_bytes=1 << 35,
    total_bytes=1 << 37,
    free_bytes=1 << 36,
    free_inodes=1000,
    fill_rate_bytes_per_s=1e6,
    total_inodes=9000,
)
ENGINE_SAMPLE = telemetry.EngineSample(
    job_id="server-260718-101500-ab12",
    engine="sglang",
    running_requests=2,
    queued_requests=0,
    prefill_tokens_per_s=900.0,
    decode_tokens_per_s=48.5,
    cache_usage=0.125,
    acceptance_length=1.75,
    acceptance_rate=0.25,
    is_answering=False,
)
JOB_SAMPLE = telemetry.JobSample(
    job_id=JOB_ID,
    agent="training",
    run_id="run-260718-101400-cd34",
    process_count=3,
    cpu_utilization=1.5,
    memory_bytes=1 << 33,
    ranks=[telemetry.RankSample(rank=1, pid=4243, state="T", cpu_utilization=0.0, gpu_index=1)],
    suspended_pids=[4243],
    activity="step",
    progress_age_s=12.0,
    progress_period_s=0.5,
    samples_per_s=4.0,
    tokens_per_s=2048.0,
    bytes_per_s=1e8,
    loss=2.5,
    loss_is_finite=True,
    accuracy=[0.5, 0.25],
    acceptance_length=1.5,
    writes_to="/data",
    bytes_left=1 << 40,
    seconds_left=10260.0,
)
DIAGNOSIS = telemetry.Diagnosis(
    code="runway_short",
    severity="error",
    subject="/data",
    since=T0 - 30,
    summary="/data is full in 9 min, extraction still needs 2 h 51 min",
    evidence="1.2 GB/s, 31 GiB free, 720 GiB still to write",
    advice="Free space with `roost storage reclaim`, or stop the run.",
    job_id=JOB_ID,
)
TELEMETRY_SAMPLE = telemetry.TelemetrySample(
    sampled_at=T0,
    host=HOST_SAMPLE,
    gpu_source="nvml",
    gpu_detail="driver 580.65",
    gpus=[GPU_SAMPLE],
    mounts=[MOUNT_SAMPLE],
    engines=[ENGINE_SAMPLE],
    jobs=[JOB_SAMPLE],
    gpu_events=[GPU_EVENT],
    diagnoses=[DIAGNOSIS],
    period_s=10.0,
)
TELEMETRY_HISTORY = telemetry.TelemetryHistory(samples=[TELEMETRY_SAMPLE], next_since=T0 + 10, oldest_at=T0 - 86_400)

SECRET = secrets.Secret(name="HF_TOKEN", state="gone", kept_in="memory", set_at=T0, set_by="ann")
REQUESTS = [
    requests.Hello(protocol=1, actor="ann@laptop"),
    requests.ListJobs(skip=100),
    requests.GetJob(job_id=JOB_ID),
    requests.StartJob(job_id=JOB_ID, spec=MAPPING_COPY, op_id=OP_ID),
    requests.StopJob(job_id=JOB_ID, op_id=OP_ID, reason="wrong data", expected_revision=3),
    requests.ReadLog(job_id=JOB_ID, offset=4096, limit=65536),
    requests.ReadProgress(job_id=JOB_ID, after_seq=7, limit=500),
    requests.Watch(telemetry=True, jobs=True, logs={JOB_ID: 4096}, progress={JOB_ID: 7}),
    requests.ReadTelemetry(),
    telemetry.ReadHistory(since=T0 - 600, until=T0, step_s=10.0),
    telemetry.ReadTopology(),
    requests.PlanRun(document='preset = "embedded"\n', overrides={"training.steps": "50"}),
    requests.PlanServer(document='preset = "embedded"\n', overrides={"engine.dtype": "float32"}, drafter=True),
    requests.ReadBenchmark(job_id="benchmark-260718-101400-cd34"),
    requests.ReadVerdict(job_id="run-260718-101400-cd34"),
    requests.ValidateMapping(path="/data/mapping"),
    secrets.SetSecret(name="HF_TOKEN", value="hf_" + "x" * 34, op_id=OP_ID),
    secrets.RemoveSecret(name="HF_TOKEN", op_id=OP_ID),
    secrets.ListSecrets(),
    storage.ReadStorage(),
    storage.PlanReclaim(paths=["runs/old"]),
    storage.MoveToTrash(paths=["runs/old"], token="6932d1f0-0123abcd", op_id=OP_ID),
    storage.RestoreFromTrash(name="261201-101500-old-1f2e", op_id=OP_ID),
]
SERVER_PLAN = reports.ServerPlan(
    run="embedded",
    spec=SERVER,
    command=["/opt/python", "-m", "sglang.launch_server", "--port", "0"],
    environment={"OMP_NUM_THREADS": "1"},
    problems=["there is no drafter at /runs/embedded/drafter"],
)
SPREAD = benchmark.Spread(median=48.5, lower=44.0, upper=51.0)
REQUEST_FIGURES = benchmark.RequestFigures(
    prompt_id="p-1", repeat=0, output_tokens=64, time_to_first_token_s=0.25, end_to_end_s=1.5, verify_calls=36
)
BENCHMARK_LEVEL = benchmark.BenchmarkLevel(
    concurrency=1,
    requests=[REQUEST_FIGURES],
    decode_tokens_per_s=SPREAD,
    output_tokens_per_s=SPREAD,
    time_to_first_token_s=SPREAD,
    end_to_end_s=SPREAD,
    acceptance_length=1.75,
    odd=1,
)
BENCHMARK_REPORT = benchmark.BenchmarkReport(
    spec=BENCHMARK,
    measured_at=T0,
    host_name="gpu-host",
    devices=["8 x NVIDIA RTX PRO 6000"],
    engine="sglang",
    engine_version="0.5.23",
    server_info={"attention_backend": "flashinfer"},
    prompts=20,
    prompts_sha256="ab" * 32,
    levels=[BENCHMARK_LEVEL],
)
PACKAGE = requests.Package(name="torch", version="2.13.0")
REPLIES = [
    requests.Welcome(
        protocol=1,
        release="d" * 64,
        host_name="gpu-host",
        user="ann",
        root="/workspace/.roost",
        python="/opt/python",
        python_version="3.11.7",
        incarnation="boot:4026531836:22",
        boot_at=T0 - 3600,
        packages=[PACKAGE, requests.Package(name="vllm", version=None)],
    ),
    requests.JobList(jobs=[JOB], omitted=3),
    requests.JobReply(job=JOB),
    requests.LogPage(job_id=JOB_ID, offset=4096, data=b"caf\xc3\xa9 \xff\x1b[0m\n", start=4096, size=8192),
    requests.ProgressPage(job_id=JOB_ID, records=[RECORD]),
    requests.Ping(),
    requests.Done(),
    TELEMETRY_SAMPLE,
    TELEMETRY_HISTORY,
    GPU_TOPOLOGY,
    RUN_PLAN,
    SERVER_PLAN,
    VERDICT,
    BENCHMARK_REPORT,
    MAPPING_REPORT,
    storage.StorageReport(root="/data/roost", mounts=[MOUNT_SAMPLE], entries=[STORAGE_ENTRY], trash=[TRASH_ENTRY]),
    storage.ReclaimPlan(
        paths=["/data/roost/runs/old"],
        bytes=1 << 40,
        files=512,
        kept=[KEPT],
        problems=["/data/roost/runs/new is in use by run-new"],
        token="6932d1f0-0123abcd",
        expires_at=T0,
    ),
    storage.TrashList(entries=[TRASH_ENTRY]),
    secrets.SecretList(secrets=[SECRET], note="kept on disk"),
]
ERROR = errors.ErrorInfo(
    code=errors.ErrorCode.CONFLICT,
    message="training changed since you looked",
    hint="Look again.",
    retryable=True,
    next_command="roost status training",
)
FRAMES = [
    frames.Call(call_id=3, request=REQUESTS[2]),
    frames.Answer(call_id=3, reply=REPLIES[2]),
    frames.Failure(call_id=3, error=ERROR),
    frames.Telemetry(sample=TELEMETRY_SAMPLE),
    frames.JobChanged(job=JOB),
    frames.ProgressMade(job_id=JOB_ID, record=RECORD),
    frames.LogData(job_id=JOB_ID, offset=4096, data=b"caf\xc3\xa9 \xff\x1b[0m\n"),
    frames.LogTruncated(job_id=JOB_ID, start=4096),
    frames.Heartbeat(at=T0),
]

SAMPLES: list[Message] = [
    *SPECS,
    CAPTURE,
    DRAFTER,
    *STAGE_STATES,
    *EVENTS,
    RECORD,
    *STATES,
    ARTIFACT,
    RESULT,
    JOB,
    FINDING,
    MAPPED_FILE,
    PROMPT,
    DIVERGENCE,
    ARM_LEVEL,
    EVALUATION_REPORT,
    LEVEL_VERDICT,
    CATEGORY,
    CAUSE,
    ARM_SERVER,
    PROVENANCE,
    STAGE_PLAN,
    SPREAD,
    REQUEST_FIGURES,
    BENCHMARK_LEVEL,
    HOST_SAMPLE,
    GPU_SAMPLE,
    MOUNT_SAMPLE,
    ENGINE_SAMPLE,
    *GPU_HEALTH.processes,
    GPU_HEALTH,
    GPU_EVENT,
    *GPU_TOPOLOGY.paths,
    *JOB_SAMPLE.ranks,
    JOB_SAMPLE,
    DIAGNOSIS,
    SECRET,
    STORAGE_ENTRY,
    TRASH_ENTRY,
    KEPT,
    *REQUESTS,
    PACKAGE,
    *REPLIES,
    ERROR,
    *FRAMES,
    bulk.BulkAdvanced(bytes_done=1 << 20, bytes_total=1 << 30),
    bulk.BulkDone(path="/data/mapping", manifest_sha256="ab" * 32, files=5, bytes_total=1 << 30, bytes_moved=1 << 29),
]
"""Each message type once."""
