"""One turn of vLLM with outlines on our wire schema: `python -m bench.gpu_vllm N`, a process of its own.

The environment says how masks come (BACKFILL_MASK_MEMO_BYTES, BACKFILL_DEVICE_MASKS) and which model
(BACKFILL_GPU_MODEL, a folder; SmolLM2-135M by default). Prints one line of JSON, the last of its output.
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    """Answers N prompts twice, the first time to warm up, and prints rates of the second."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_REGEX_COMPILATION_TIMEOUT_S", "120")
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    from backfill.engines.device_masks import MASKS
    from backfill.schema import WIRE_SCHEMA
    from backfill.weights import smollm2_dir
    from bench.embed import texts_of

    n = int(sys.argv[1])
    llm = LLM(
        model=os.environ.get("BACKFILL_GPU_MODEL") or str(smollm2_dir()),
        dtype="auto",
        max_model_len=1024,
        max_num_seqs=min(n, 1024),
        gpu_memory_utilization=0.6,
        # Capturing graphs takes longer than all that is measured here, and masks are applied outside of them.
        enforce_eager=True,
        structured_outputs_config={"backend": "outlines"},
    )
    schema = StructuredOutputsParams(json=WIRE_SCHEMA)
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=False, structured_outputs=schema)
    prompts = [f"Say in a sentence what was done.\n{text}\n" for text in texts_of(n, seed=9)]
    llm.generate(prompts[:64], params, use_tqdm=False)
    before = MASKS.launches
    began = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    took_s = time.perf_counter() - began
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    record = {"tokens_s": tokens / took_s, "exchanges_s": n / took_s, "launches": MASKS.launches - before}
    print(json.dumps(record), flush=True)
    # Teardown of torch and vLLM may hang; the device goes with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
