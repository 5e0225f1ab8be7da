// SPDX-License-Identifier: GPL-2.0

//! Allocation flags that the kernel crate lacks.
//!
//! C header: `include/linux/gfp_types.h`

use core::mem::transmute;
use kernel::alloc::Flags;
use nvfs_bindings as bindings;

/// Memory for a process, charged to its memory cgroup: what `GFP_KERNEL_ACCOUNT` is, but if there is
/// no more, in the cgroup or at all, the allocation fails, silently. Nobody is killed to make room.
///
/// May sleep.
pub const GFP_CHARGED: Flags =
    // SAFETY: `Flags` has one field, the `gfp_t` itself; a `u32` of any value is one.
    unsafe { transmute::<u32, Flags>(bindings::nvfs_gfp_NVFS_GFP_CHARGED) };
