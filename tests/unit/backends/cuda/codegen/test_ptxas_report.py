"""What the assembler says that costs time reaches the kernel that it is about."""

from __future__ import annotations

from tilec.backends.cuda.codegen.compilers import find_compiler
from tilec.backends.cuda.codegen.ptxas_report import parse_report

#: A warpgroup product whose sum is changed before it is complete, and an array that is indexed at run time.
SOURCE = """
extern "C" __global__ void product(float* out, unsigned long long a, unsigned long long b, int n) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;");
  for (int i = 0; i < n; i++) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; "
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5,"
                 " p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a + i), "l"(b));
    d[0] += 1.0f;
  }
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i];
}
extern "C" __global__ void indexed(float* out, const int* at) {
  float v[64];
  for (int i = 0; i < 64; i++) v[i] = out[i * threadIdx.x];
  for (int i = 0; i < 64; i++) v[at[i]] += 1.0f;
  float sum = 0;
  for (int i = 0; i < 64; i++) sum += v[i] * v[i * 7 % 64];
  out[threadIdx.x] = sum;
}
extern "C" __global__ void plain(float* out) { out[threadIdx.x] = 1; }
"""
SPILLS = """\
ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes spill stores
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas warning : Value of threads per SM for entry k is out of range. .minnctapersm will be ignored
ptxas         .     8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers
ptxas info    : Compiling entry function 'other' for 'sm_80'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
"""


def test_serialised_products_and_local_memory_are_read_from_a_real_assembler() -> None:
    reports = parse_report(find_compiler().compile(SOURCE, "sm_90a").log)
    said = {name: " ".join(f"{how}: {loss}" for how, loss in one.losses()) for name, one in reports.items()}
    assert "wgmma.mma_async instructions are serialized" in said["product"]
    assert "warpgroup.wait is injected" in said["product"]
    assert said["product"].count("is injected") == 1, "one line for all places"
    assert "leave unroll out" in said["product"]
    assert "of local memory in each thread" in said["indexed"]
    assert said["plain"] == ""


def test_warnings_go_to_the_kernel_that_they_name_or_stand_by() -> None:
    found = parse_report(SPILLS)
    assert [text.partition(",")[0] for text in found["k"].warnings] == [
        "Registers are spilled to local memory",
        "Value of threads per SM is out of range. .minnctapersm will be ignored",
    ]
    assert found["other"].warnings == ()
    first = next(loss for _, loss in found["k"].losses())
    assert first.condition == "its tiles need more registers than a thread has"
    assert list(found["other"].losses()) == []
