// SPDX-License-Identifier: GPL-2.0

//! GPUDirect Storage: file I/O straight between storage devices and GPU memory.

#![forbid(unsafe_code)]

use kernel::prelude::*;

module! {
    type: NvidiaFs,
    name: "nvidia-fs",
    authors: ["The nvidia-fs.rs developers"],
    description: "NVIDIA GPUDirect Storage",
    license: "GPL v2",
}

struct NvidiaFs;

impl kernel::Module for NvidiaFs {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        pr_info!("hello {}\n", nvfs_kernel::hello());
        Ok(NvidiaFs)
    }
}
