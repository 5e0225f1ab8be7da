// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions that the kernel crate lacks: all the `unsafe` code of the module is here.
//!
//! Nothing here knows what GPUDirect Storage is; only [`gpu`] knows of NVIDIA.

use nvfs_bindings as bindings;

pub mod alloc;
pub mod block;
pub mod chardev;
pub mod completion;
pub mod dma_ops;
pub mod extents;
pub mod fault;
pub mod file;
pub mod gpu;
pub mod kiocb;
pub mod modules;
pub mod p2pdma;
pub mod param;
pub mod pci;
pub mod pci_events;
pub mod percpu;
pub mod pin;
pub mod platform;
pub mod plug;
pub mod procfs;
pub mod published;
pub mod ratelimit;
pub mod reaper;
pub mod shadow;
pub mod symbol;
pub mod trace;
pub mod user;
pub mod vma;

const __LOG_PREFIX: &[u8] = b"nvidia-fs\0";
