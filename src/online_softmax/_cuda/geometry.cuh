// What a kernel is compiled for: geometry.py chooses it from the row's bytes and passes it as macros.
//   INPUT, OUTPUT   element types        THREADS  a block             GROUP   threads that share a row
//   SLOTS           16-byte words a thread            CLUSTER  blocks that share a row
//   PERSISTENT      1: clusters stay and take row after row; 0: one row each
//   BLOCKS          blocks that should fit one multiprocessor    HELD     slots in registers, where kernels divide them
#pragma once
#include "numbers.cuh"

namespace online_softmax {

using Input = INPUT;
using Output = OUTPUT;

template <class A, class B> struct SameType { static constexpr bool value = false; };
template <class A> struct SameType<A, A> { static constexpr bool value = true; };
template <bool FIRST, class A, class B> struct Either { using type = A; };
template <class A, class B> struct Either<false, A, B> { using type = B; };

constexpr bool kDouble = SameType<Input, double>::value || SameType<Output, double>::value;
using Compute = Either<kDouble, double, float>::type;

constexpr int kThreads = THREADS, kSlots = SLOTS, kCluster = CLUSTER, kGroup = GROUP;
constexpr bool kPersistent = PERSISTENT;
constexpr int kElements = kPerWord<Input>;              // elements in a word
constexpr int kValues = kSlots * kElements;             // elements a thread holds
constexpr int kLanes = kGroup < 32 ? kGroup : 32;       // lanes of a warp that share a row
constexpr int kWarps = (kGroup + 31) / 32;              // warps of a block that share a row
constexpr int kRowsPerBlock = kGroup < kThreads ? kThreads / kGroup : 1;
constexpr bool kWithinWarp = kGroup <= 32;              // no other warp has a part of the row

static_assert(kThreads % kGroup == 0 && (kWithinWarp || kGroup % 32 == 0), "a group is lanes of a warp, or warps");
static_assert(kCluster == 1 || kGroup == kThreads, "blocks of a cluster share one row");

}  // namespace online_softmax
