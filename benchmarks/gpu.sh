#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, under 10 minutes: the tests on the card, the self-test, and times, beside torch's where
# that is installed.  Writes DIRECTORY/gpu.json (default benchmarks/results) with the commit and a digest
# of the CUDA sources:   benchmarks/gpu.sh [DIRECTORY]
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
out=${1:-benchmarks/results}
mkdir -p "$out"
tests=(tests/engine/{cuda,amp,backends/cuda,multiprocessing/test_cuda.py,ops/test_cudnn.py,programs/test_capture.py}
    tests/engine/{dispatch/test_judge.py,distributed/test_nccl.py,optim/test_optimizer.py})
REQUIRE_CUDA=1 timeout 200 "$python" -m pytest -m "cuda and not slow" "${tests[@]}" -n auto --dist worksteal -p no:benchmark \
    -rs >"$out/gpu-tests.txt" 2>&1
tests=$?
tail -n 15 "$out/gpu-tests.txt"
timeout 60 "$python" -m engine.cuda.selftest | tee "$out/gpu-selftest.txt"
selftest=${PIPESTATUS[0]}
sanitizer=absent
if command -v compute-sanitizer >/dev/null; then
    timeout 90 compute-sanitizer --tool memcheck --error-exitcode 9 "$python" -m engine.cuda.selftest >"$out/gpu-memcheck.txt" 2>&1
    sanitizer=$?
fi
timeout 240 "$python" -m benchmarks.gpu --tests "$tests" --selftest "$selftest" --sanitizer "$sanitizer" --output "$out/gpu.json"
times=$?
exit $((tests || selftest || times))
