// SPDX-License-Identifier: GPL-2.0

//! What all open nodes and all buffers share.

use crate::{
    buffer,
    counters::Totals,
    ioctl,
    peers::Peers,
    stats::Stats,
    vendors::Vendors, //
};
use kernel::{
    mm::virt::VmaNew,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    },
};
use nvfs_kernel::{
    chardev,
    gpu,
    ratelimit::RateLimit,
    reaper, //
};

/// The shared state.
#[pin_data]
pub(crate) struct Driver {
    /// Number of device nodes.
    pub(crate) nodes: u32,
    opens: Atomic<i32>,
    /// The GPU driver.
    pub(crate) gpu: gpu::Interface,
    /// Who frees buffers.
    pub(crate) reaper: reaper::Handle,
    /// Counters.
    #[pin]
    pub(crate) stats: Stats,
    /// Counters that are never reset.
    pub(crate) totals: Totals,
    /// GPUs, and who can reach them.
    #[pin]
    pub(crate) peers: Peers,
    /// Storage drivers with hooks.
    #[pin]
    pub(crate) vendors: Vendors,
    /// For the reasons of failed MAPs.
    #[pin]
    pub(crate) map_log: RateLimit,
    /// For the reasons of transfers that cannot be.
    #[pin]
    pub(crate) path_log: RateLimit,
    /// For GPU memory that waits to be freed.
    #[pin]
    pub(crate) free_log: RateLimit,
}

impl Driver {
    /// The state for `nodes` nodes. May sleep. Fails with `ENOMEM`.
    pub(crate) fn new(
        nodes: u32,
        gpu: gpu::Interface,
        reaper: reaper::Handle,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                nodes,
                opens: Atomic::new(0),
                gpu,
                reaper,
                stats <- Stats::new(),
                totals: Totals::new()?,
                peers <- Peers::new(),
                vendors <- Vendors::new(),
                map_log <- RateLimit::new(10),
                path_log <- RateLimit::new(10),
                free_log <- RateLimit::new(10),
            }),
            GFP_KERNEL,
        )
    }

    /// Open files of all nodes.
    pub(crate) fn opens(&self) -> u32 {
        u32::try_from(self.opens.load(Relaxed)).unwrap_or(0)
    }
}

impl chardev::Operations for Driver {
    fn open(this: ArcBorrow<'_, Self>) -> Result {
        this.opens.fetch_add(1, Relaxed);
        this.vendors.open();
        Ok(())
    }

    fn release(this: ArcBorrow<'_, Self>) {
        this.opens.fetch_add(-1, Relaxed);
        this.vendors.leave();
    }

    fn ioctl(this: ArcBorrow<'_, Self>, cmd: u32, arg: usize) -> Result<isize> {
        ioctl::dispatch(this, cmd, arg)
    }

    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew, offset: usize) -> Result {
        buffer::mmap(this, vma, offset)
    }
}
