// SPDX-License-Identifier: GPL-2.0

//! Raw declarations: those of the kernel crate, and those that it lacks, under one name.
//!
//! Only `nvfs_kernel` uses this crate.

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

pub use kernel::bindings::*;

include!(concat!(
    env!("NVFS_OBJ"),
    "/rust/bindings/bindings_generated.rs"
));
