"""A whole model in vLLM on the CPU: numbers in place of masks lead to the same tokens, and to what the grammar allows.

The worker is vLLM's own; masks are applied by the reference, as the kernel needs a GPU. What the kernel does to the
same logits is tests/kernels'. This module is its own child process, for vLLM leaves no process as it found it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from backfill.engines import device_masks
from tests.conftest import ROOT

PATTERN = r'\{"c":"[a-z ]{3,24}\."\}'
PROMPTS = ("Why did the export fail?", "Say hello.", "Which role was missing?", "Name the lock.")
FREE = 1
"""The prompt that is answered without a grammar, between those with one."""
TOKENS = 28


def answered() -> dict[str, object]:
    """Tokens and texts by numbers, then with rows spelled out for vLLM's own way, and the launches of each."""
    from backfill.engines.outlines_memo import register
    from backfill.weights import smollm2_dir

    register()
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    llm = LLM(
        str(smollm2_dir()), dtype="float32", max_model_len=256, enforce_eager=True, max_num_seqs=4,
        structured_outputs_config={"backend": "outlines"}, enable_prefix_caching=False,
    )  # fmt: skip
    bound = SamplingParams(temperature=0, max_tokens=TOKENS, structured_outputs=StructuredOutputsParams(regex=PATTERN))
    free = SamplingParams(temperature=0, max_tokens=9)
    wanted = [free if n == FREE else bound for n in range(len(PROMPTS))]
    masks = device_masks.MASKS
    found: dict[str, object] = {}
    for way in ("numbers", "rows"):
        before = masks.launches
        answers = [request.outputs[0] for request in llm.generate(list(PROMPTS), wanted, use_tqdm=False)]
        found[way] = {
            "tokens": [list(answer.token_ids) for answer in answers],
            "texts": [answer.text for answer in answers],
            "launches": masks.launches - before,
        }
        masks._trusted = False  # as where the first launch differed from vLLM's own result
    return found


@pytest.mark.slow
def test_a_model_answers_alike_by_numbers_and_by_rows() -> None:
    pytest.importorskip("vllm")
    environment = {
        **os.environ,
        device_masks.VARIABLE: "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_REGEX_COMPILATION_TIMEOUT_S": "300",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "tests.engines.test_device_masks_model"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    line = next((line for line in done.stdout.splitlines() if line.startswith("ANSWERED ")), None)
    assert line, done.stdout[-2000:] + done.stderr[-4000:]
    assert "token masks stay on the host" not in done.stdout + done.stderr
    found = json.loads(line.removeprefix("ANSWERED "))
    by_numbers, by_rows = found["numbers"], found["rows"]
    assert by_numbers["tokens"] == by_rows["tokens"]
    longest = max(len(tokens) for n, tokens in enumerate(by_numbers["tokens"]) if n != FREE)
    assert longest - 1 <= by_numbers["launches"] <= longest, "a launch a step, but for the one that is compared"
    assert by_rows["launches"] == 0
    bound = [text for n, text in enumerate(by_numbers["texts"]) if n != FREE]
    assert all(re.fullmatch(PATTERN, text) for text in bound), bound
    assert not re.fullmatch(PATTERN, by_numbers["texts"][FREE])


if __name__ == "__main__":
    print("ANSWERED " + json.dumps(answered()), flush=True)
    os._exit(0)  # vLLM's threads are not waited for
