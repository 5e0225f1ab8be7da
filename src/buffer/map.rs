// SPDX-License-Identifier: GPL-2.0

//! MAP: GPU memory is pinned and bound to a buffer, until the buffer or the memory goes away.
//!
//! Contract sections 7, 11.7 and 18.

use super::{
    find,
    life::{
        Attempt,
        Life, //
    },
    Binding, //
};
use crate::{
    abi::{
        MapArgs,
        BLOCK, //
    },
    counters::Total,
    driver::Driver,
    geometry::{
        GpuRange,
        GPU_PAGE, //
    },
    meta::Meta,
    params,
    peers::Gpu,
    stats::Counter,
    window::Window, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
        Arc,
        ArcBorrow, //
    },
    time::Msecs,
};
use nvfs_kernel::{
    alloc::GFP_CHARGED,
    extents::Extent,
    fault::{
        self,
        Point, //
    },
    gpu::{
        self,
        PinError,
        PinnedGpu, //
    },
    pci::Address,
    platform,
    reaper::{
        Deferred,
        Reaped, //
    },
    trace, //
};

/// How long a free callback waits before it says so, in milliseconds.
const PATIENCE_MS: Msecs = 10_000;

/// What the GPU driver's free callback does to a buffer: contract section 11.7.
pub(super) struct Revocation {
    life: Arc<Life>,
    meta: Arc<Meta>,
    driver: Arc<Driver>,
    range: GpuRange,
}

impl gpu::Owner for Revocation {
    fn stop(&self) {
        self.driver.stats.count(Counter::Callbacks);
        self.driver.totals.count(Total::Callbacks);
        let begin = platform::monotonic_ns();
        self.drain();
        trace::free_callback(|| {
            let waited = platform::monotonic_ns().saturating_sub(begin) / 1000;
            (
                self.life.gpu.load(Relaxed),
                self.range.va(),
                self.range.size(),
                u64::try_from(waited).unwrap_or(0),
            )
        });
    }

    fn gone(&self) {
        self.meta.died();
    }

    fn mapped(&self) {
        self.driver.totals.count(Total::Mappings);
    }

    fn unmapped(&self) {
        self.driver.totals.count(Total::Unmappings);
    }
}

impl Revocation {
    /// No new transfer may begin; waits for the end of the one under way.
    fn drain(&self) {
        self.life.revoke(PATIENCE_MS, || {
            if self.driver.free_log.allows() {
                pr_warn!(
                    "GPU memory of {} bytes is being freed, but its storage device has not finished a transfer for {} s; waiting\n",
                    self.range.size(),
                    PATIENCE_MS / 1000
                );
            }
        });
    }
}

/// Counts a mapped buffer for as long as it lives.
pub(super) struct Account {
    driver: Arc<Driver>,
    uuid: [u8; 16],
    gpu: u64,
    va: u64,
    size: u64,
    bounce: bool,
    user: Option<ARef<Reaped<User>>>,
}

impl Account {
    fn new(
        driver: Arc<Driver>,
        uuid: [u8; 16],
        gpu: Option<Gpu>,
        args: &MapArgs,
        size: u64,
    ) -> Result<Self> {
        let bounce = args.is_bounce_buffer == 1;
        let user = User::new(driver.clone())?;
        let address = gpu.map(|gpu| gpu.address);
        let gpu = address.map_or(0, Address::to_pdevinfo);
        driver.stats.gpu_mapped(uuid, address, size, bounce)?;
        driver.stats.count(Counter::ActiveMaps);
        driver.totals.count(Total::Pins);
        Ok(Self {
            driver,
            uuid,
            gpu,
            va: args.gpuvaddr,
            size,
            bounce,
            user: Some(user),
        })
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let stats = &self.driver.stats;
        stats.take(Counter::ActiveMaps, 1);
        self.driver.totals.count(Total::Unpins);
        stats.gpu_unmapped(self.uuid, self.size, self.bounce);
        trace::unmap(|| (self.gpu, self.va, self.size));
        // The last user takes the storage drivers' tables back, which must not be done under the
        // locks of an unmapping process.
        if let Some(Err(user)) = self.user.take().map(Reaped::later) {
            drop(user);
        }
    }
}

/// A mapped buffer as a user of the storage drivers' hooks.
struct User {
    driver: Arc<Driver>,
}

impl User {
    fn new(driver: Arc<Driver>) -> Result<ARef<Reaped<Self>>> {
        driver.vendors.join();
        let reaper = driver.reaper.clone();
        Reaped::new(&reaper, User { driver })
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.driver.vendors.leave();
    }
}

impl Deferred for User {
    fn deferred(this: ARef<Reaped<Self>>) {
        drop(this);
    }
}

/// The ioctl MAP: contract section 7. May sleep. A failure undoes all, and MAP may be tried again.
pub(crate) fn map(driver: ArcBorrow<'_, Driver>, args: &MapArgs) -> Result {
    driver.stats.count(Counter::Maps);
    let mapped = try_map(driver, args);
    driver.stats.count(match mapped {
        Ok(_) => Counter::MapsOk,
        Err(_) => Counter::MapsErr,
    });
    if mapped.is_err() {
        driver.totals.count(Total::PinsFailed);
    }
    trace::map(|| {
        let shadow = u64::from(args.sbuf_block) * BLOCK;
        let (gpu, result) = match mapped {
            Ok(gpu) => (gpu, 0),
            Err(e) => (0, e.to_errno()),
        };
        (gpu, args.gpuvaddr, args.size as u64, shadow, result)
    });
    mapped.map(|_| ())
}

/// Returns the GPU's address as a number, 0 if it is not known.
fn try_map(driver: ArcBorrow<'_, Driver>, args: &MapArgs) -> Result<u64> {
    let (buffer, len) = find(args.cpuvaddr)?;
    let shadow = u64::from(args.sbuf_block) * BLOCK;
    if shadow == 0 || shadow > len || fault::fires(Point::PinShadow) {
        return Err(EINVAL);
    }
    let meta = Arc::new(Meta::new(args.end_fence_addr)?, GFP_KERNEL)?;
    let attempt = Attempt::begin(&buffer.life)?;
    let range = GpuRange::new(args.gpuvaddr, args.size, shadow).ok_or(EINVAL)?;
    let owner = Revocation {
        life: buffer.life.clone(),
        meta: meta.clone(),
        driver: driver.into(),
        range,
    };
    let (pin, layout) = pin(driver, &range, owner).map_err(|e| explain(driver, &range, e))?;
    let pages = addresses(&layout.extents)?;
    let phys = layout.extents.first().map(|extent| extent.phys);
    let gpu = driver.peers.gpu_of(phys, args.pdevinfo);
    if gpu.is_none() && driver.map_log.allows() {
        pr_info!(
            "GPU memory was mapped whose GPU is not known (the program named {:#x})\n",
            args.pdevinfo
        );
    }
    let number = gpu.map_or(0, |gpu| gpu.address.to_pdevinfo());
    buffer.life.gpu.store(number, Relaxed);
    let account = Account::new(driver.into(), layout.uuid, gpu, args, range.size())?;
    buffer.binding.populate(Binding {
        extents: layout.extents,
        pages,
        pin,
        window: Window::new(len)?,
        shadow_len: shadow,
        range,
        meta,
        gpu,
        _account: account,
    });
    attempt.succeed();
    Ok(number)
}

/// Pins GPU memory. May sleep.
fn pin(
    driver: ArcBorrow<'_, Driver>,
    range: &GpuRange,
    owner: Revocation,
) -> Result<(PinnedGpu<Revocation>, gpu::Layout), PinError> {
    if fault::fires(Point::GetPages) {
        return Err(PinError::Driver(ENOMEM));
    }
    let (start, len) = (range.pinned_start(), range.pinned_len());
    let made = PinnedGpu::new(&driver.gpu, params::pin_kind(), start, len, owner)?;
    if fault::fires(Point::P2pPage) {
        return Err(PinError::Other(EFAULT));
    }
    Ok(made)
}

/// The address of each GPU page of some extents.
fn addresses(extents: &[Extent]) -> Result<KVVec<u64>> {
    let mut pages = KVVec::new();
    for extent in extents {
        for address in (extent.phys..)
            .step_by(GPU_PAGE as usize)
            .take(extent.len / GPU_PAGE as usize)
        {
            pages.push(address, GFP_CHARGED)?;
        }
    }
    Ok(pages)
}

/// Says in the log why GPU memory could not be pinned; returns what the user is told.
fn explain(driver: ArcBorrow<'_, Driver>, range: &GpuRange, e: PinError) -> Error {
    let errno = e.errno();
    if !driver.map_log.allows() {
        return errno;
    }
    let size = range.size();
    match e {
        PinError::NoDriver => pr_warn!(
            "cannot map GPU memory: NVIDIA's open GPU kernel driver is not loaded, or exports no nvidia_p2p functions\n"
        ),
        PinError::Driver(e) => pr_warn!(
            "cannot map {} bytes of GPU memory: the GPU driver refused with error {} (-12: BAR1 space is used up; -22: this GPU or memory cannot be pinned)\n",
            size,
            e.to_errno()
        ),
        PinError::Version(version) => pr_warn!(
            "cannot map GPU memory: the GPU driver's page table has version {:#010x}, known are 0x00010002 and 0x00020000\n",
            version
        ),
        PinError::PageSize(value) => pr_warn!(
            "cannot map GPU memory: the GPU driver's page size code is {}, only 1 (64 KiB) is supported\n",
            value
        ),
        PinError::Malformed => pr_warn!(
            "cannot map GPU memory: the GPU driver's page table does not cover the {} bytes\n",
            size
        ),
        PinError::Other(e) => pr_warn!("cannot map GPU memory: error {}\n", e.to_errno()),
    }
    errno
}
