// SPDX-License-Identifier: GPL-2.0

//! GPUDirect Storage: file I/O straight between storage devices and GPU memory, through
//! `/dev/nvidia-fs*`.
//!
//! The way of a request through the files: `ioctl` → `buffer` → `io` → `path`, and back
//! through `meta` and `stats`.

#![forbid(unsafe_code)]

mod abi;
mod batch;
mod buffer;
mod counters;
mod driver;
mod geometry;
mod holes;
mod io;
mod ioctl;
mod meta;
mod params;
mod path;
mod peers;
mod proc;
mod rdma;
mod stats;
mod topology;
mod vendors;
mod window;

use buffer::{
    Buffer,
    SHADOWS, //
};
use driver::Driver;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use nvfs_kernel::{
    chardev,
    fault,
    gpu,
    modinfo,
    modules,
    pci_events,
    procfs,
    published::Offer,
    reaper::Reaper,
    shadow, //
};

module! {
    type: NvidiaFs,
    name: "nvidia-fs",
    authors: ["The nvidia-fs developers"],
    description: "NVIDIA GPUDirect Storage",
    license: "GPL v2",
}

modinfo!("version=", "2.28.4");
// The GPU driver is looked up at run time; where it is installed, it should be loaded first.
modinfo!("softdep=", "pre: nvidia");

/// The module. The fields are in the order of its end: first nobody can come in any more, then
/// all buffers are gone, then what they used.
struct NvidiaFs {
    _nodes: chardev::Registration<Driver>,
    _faults: fault::Directory,
    _proc: Option<procfs::Dir<Driver>>,
    _events: Pin<KBox<pci_events::Events<Driver>>>,
    _reaper: Reaper,
    _shadows: shadow::Opened<Buffer>,
    _offer: Offer<Driver>,
    _driver: Arc<Driver>,
    _modules: Pin<KBox<modules::Watch>>,
}

impl kernel::Module for NvidiaFs {
    fn init(module: &'static ThisModule) -> Result<Self> {
        params::settle_pin_kind();
        let nodes = params::device_count();
        let shadows = SHADOWS.open()?;
        let modules = KBox::try_pin_init(modules::Watch::new(), GFP_KERNEL)?;
        let reaper = Reaper::new(c"nvidia-fs")?;
        let gpu = gpu::Interface::new(module)?;
        let present = gpu.is_present();
        let driver = Driver::new(nodes, gpu, reaper.handle())?;
        let offer = buffer::DRIVER.offer(driver.clone())?;
        // Before the first scan, so that no change can be missed.
        let events = KBox::try_pin_init(pci_events::Events::new(driver.clone()), GFP_KERNEL)?;
        let proc = proc::create(&driver)
            .inspect_err(|e| pr_warn!("no /proc/driver/nvidia-fs: error {}\n", e.to_errno()))
            .ok();
        // Last of what can fail: files may be open from now on.
        let registration = chardev::Registration::new(
            c"nvidia-fs",
            c"nvidia-fs-class",
            c"nvidia-fs",
            nodes,
            driver.clone(),
        )?;
        if present {
            pr_info!("{} device nodes; NVIDIA's GPU driver is loaded\n", nodes);
        } else {
            pr_info!(
                "{} device nodes; NVIDIA's GPU driver is not loaded (or is not the open one): GPU memory can be mapped only after it is\n",
                nodes
            );
        }
        Ok(Self {
            _nodes: registration,
            _faults: fault::Directory::new(),
            _proc: proc,
            _events: events,
            _reaper: reaper,
            _shadows: shadows,
            _offer: offer,
            _driver: driver,
            _modules: modules,
        })
    }
}
