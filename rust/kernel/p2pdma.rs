// SPDX-License-Identifier: GPL-2.0

//! PCI peer-to-peer memory: the pages of a BAR that the block layer can do DMA to.
//!
//! A BAR gets its pages from its device's driver, or from [`register`]; either way they stay until
//! that driver is unbound, whatever becomes of this module. The memory is never published, so the
//! kernel gives none of it to others; root can take some through the device's `p2pmem/allocate` in
//! sysfs, as it can write to the BAR through `resource*` there.
//!
//! C headers: `include/linux/pci-p2pdma.h`, `include/linux/memremap.h`.

use crate::{
    bindings,
    extents::{
        joined,
        locate,
        Extent, //
    },
    kiocb::Segment,
    pci::{
        Bar,
        Function, //
    },
    platform, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    fmt,
    page::PAGE_SHIFT,
    prelude::*, //
};

/// What the start and the length of memory with pages must be multiples of, in bytes: a subsection
/// of the memory map (`SUBSECTION_SIZE`).
const SUBSECTION: u64 = 2 << 20;

/// How long [`register`] waits for a function that is locked by others.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE_MS: u32 = 10;

/// A counted reference on a range of device memory that has pages: they stay while it lives.
///
/// # Invariants
///
/// One reference of `get_dev_pagemap` is owned.
struct PageMap(NonNull<bindings::dev_pagemap>);

// SAFETY: The count is atomic, and belongs to no thread.
unsafe impl Send for PageMap {}
// SAFETY: What is read does not change.
unsafe impl Sync for PageMap {}

impl PageMap {
    /// The map around a physical address.
    fn of(phys: u64) -> Option<Self> {
        let pfn = usize::try_from(phys >> PAGE_SHIFT).ok()?;
        // SAFETY: Any number may be asked for.
        let map = unsafe { bindings::get_dev_pagemap(pfn) };
        // INVARIANT: As returned.
        NonNull::new(map).map(Self)
    }

    /// Whether its pages are those of PCI peer-to-peer memory.
    fn is_p2pdma(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_pgmap_is_p2pdma(self.0.as_ptr()) }
    }

    /// Address of its last byte.
    fn last(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_pgmap_last(self.0.as_ptr()) }
    }
}

impl Drop for PageMap {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_put_dev_pagemap(self.0.as_ptr()) }
    }
}

/// Why [`Memory::new`] failed.
pub enum NoPages {
    /// There is none, or not of this kind, at some address.
    Missing,
    /// The list of extents makes no sense: empty pieces, beyond the BAR, not whole pages.
    Malformed,
    /// Memory of our own is short.
    NoMemory,
}

impl From<kernel::alloc::AllocError> for NoPages {
    fn from(_: kernel::alloc::AllocError) -> Self {
        NoPages::NoMemory
    }
}

/// Peer-to-peer memory in the order of a buffer, as the CPU addresses it.
///
/// # Invariants
///
/// - Each of `kvecs` is memory with peer-to-peer pages, kept by one of `maps`.
/// - `starts` has the place in the buffer of the first byte of each of `kvecs`; together they have
///   `len` bytes.
pub struct Memory {
    kvecs: KVVec<bindings::kvec>,
    starts: KVVec<usize>,
    len: usize,
    _maps: KVec<PageMap>,
}

// SAFETY: The addresses are only given to the kernel's own I/O code.
unsafe impl Send for Memory {}
// SAFETY: As above; it is not changed.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory at `extents`, all of which must be in `bar`. Costs one look-up for each extent.
    /// May sleep.
    pub fn new(bar: &Bar, extents: &[Extent]) -> Result<Self, NoPages> {
        let mut memory = Self {
            kvecs: KVVec::new(),
            starts: KVVec::new(),
            len: 0,
            _maps: KVec::new(),
        };
        let page_mask = (1u64 << PAGE_SHIFT) - 1;
        for extent in joined(extents) {
            let extent = extent.map_err(|_| NoPages::Malformed)?;
            let end = extent.end().ok_or(NoPages::Malformed)?;
            if bar.offset_of(extent.phys).is_none()
                || end.saturating_sub(1) > bar.last()
                || (extent.phys | end) & page_mask != 0
            {
                return Err(NoPages::Malformed);
            }
            let mut rest = Some(extent);
            while let Some(part) = rest {
                let last = memory.map_around(part.phys)?;
                let (first, more) = part.split_after(last);
                if first.len == 0 {
                    return Err(NoPages::Malformed);
                }
                memory.push(first)?;
                rest = more;
            }
        }
        Ok(memory)
    }

    /// Holds the map around an address, once for each map; returns its last address.
    fn map_around(&mut self, phys: u64) -> Result<u64, NoPages> {
        let map = PageMap::of(phys)
            .filter(PageMap::is_p2pdma)
            .ok_or(NoPages::Missing)?;
        let last = map.last();
        if !self._maps.iter().any(|held| held.0 == map.0) {
            self._maps.push(map, GFP_KERNEL)?;
        }
        Ok(last)
    }

    /// Adds memory that one of the maps has.
    fn push(&mut self, extent: Extent) -> Result<(), NoPages> {
        let pfn = usize::try_from(extent.phys >> PAGE_SHIFT).map_err(|_| NoPages::Malformed)?;
        // SAFETY: The map that is held has a page for this address.
        let base = unsafe { bindings::nvfs_helper_pfn_address(pfn) };
        let len = self.len.checked_add(extent.len).ok_or(NoPages::Malformed)?;
        self.starts.push(self.len, GFP_KERNEL_ACCOUNT)?;
        self.kvecs.push(
            bindings::kvec {
                iov_base: base,
                iov_len: extent.len,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        // INVARIANT: Both lists have one more, and the sum is right.
        self.len = len;
        Ok(())
    }

    /// `len` bytes from byte `offset` on; `None` if there are not so many. Costs the logarithm of
    /// the number of pieces.
    pub fn segment(&self, offset: u64, len: u64) -> Option<Segment<'_>> {
        let offset = usize::try_from(offset).ok()?;
        let len = usize::try_from(len).ok()?;
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let (index, skip) = locate(&self.starts, self.len, offset)?;
        let kvecs = self.kvecs.get(index..)?;
        // SAFETY: By the type invariants: the kvecs from `index` on have all from `offset - skip`
        // to the end, which is at least `skip + len` bytes; `locate` gives a skip that is inside
        // the first of them.
        Some(unsafe { Segment::new(kvecs, skip, len) })
    }
}

/// Why a BAR cannot be given pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CannotRegister {
    /// Start or length of the BAR.
    Alignment,
    /// No driver has the device; one could not be bound after.
    Unbound,
    /// Its driver is being bound or unbound.
    Locked,
    /// A part of it has pages already, but not all.
    Partial,
    /// The kernel's own error.
    Kernel(Error),
}

impl fmt::Display for CannotRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alignment => f.write_str("its start or length is not a multiple of 2 MiB"),
            Self::Unbound => f.write_str("no driver is bound to the GPU"),
            Self::Locked => f.write_str("its driver is being bound or unbound"),
            Self::Partial => f.write_str("another driver made pages for a part of it"),
            Self::Kernel(e) => write!(f, "the kernel failed with error {}", e.to_errno()),
        }
    }
}

/// How much of a BAR has pages.
enum Coverage {
    None,
    Some,
    All,
}

fn coverage(bar: &Bar) -> Coverage {
    let mut seen = (false, false);
    let mut at = bar.start;
    loop {
        // On to the end of the map, or to the next place where one can begin.
        let next = match PageMap::of(at).filter(PageMap::is_p2pdma) {
            Some(map) => {
                seen.0 = true;
                map.last().saturating_add(1)
            }
            None => {
                seen.1 = true;
                at.saturating_add(SUBSECTION)
            }
        };
        if next > bar.last() || next <= at {
            break;
        }
        at = next;
    }
    match seen {
        (true, false) => Coverage::All,
        (true, true) => Coverage::Some,
        (false, _) => Coverage::None,
    }
}

/// What [`register`] would say, as far as it can be told without doing it. May sleep.
pub fn can_register(function: &Function, bar: &Bar) -> Result<(), CannotRegister> {
    match coverage(bar) {
        Coverage::All => return Ok(()),
        Coverage::Some => return Err(CannotRegister::Partial),
        Coverage::None => (),
    }
    if bar.start % SUBSECTION != 0 || bar.len % SUBSECTION != 0 {
        return Err(CannotRegister::Alignment);
    }
    if !function.is_bound() {
        return Err(CannotRegister::Unbound);
    }
    Ok(())
}

/// Makes sure that all of a BAR has peer-to-peer pages, for as long as its driver stays bound.
///
/// May sleep. It costs 64 bytes of memory for each 4 KiB of the BAR, and some milliseconds, once.
pub fn register(function: &Function, bar: &Bar) -> Result<(), CannotRegister> {
    for _ in 0..LOCK_TRIES {
        // Waiting for the lock could be for ever: who unbinds the GPU's driver holds it, and may
        // wait for our transfers.
        if let Some(locked) = function.try_lock() {
            let function = locked.function();
            can_register(function, bar)?;
            if matches!(coverage(bar), Coverage::All) {
                return Ok(());
            }
            let index = c_int::try_from(bar.index).map_err(|_| CannotRegister::Kernel(EINVAL))?;
            // SAFETY: The function is live, bound and locked; 0 and 0 mean all of the BAR.
            let added =
                unsafe { bindings::pci_p2pdma_add_resource(function.as_ptr(), index, 0, 0) };
            return to_result(added).map_err(CannotRegister::Kernel);
        }
        if matches!(coverage(bar), Coverage::All) {
            return Ok(());
        }
        platform::sleep_ms(LOCK_PAUSE_MS);
    }
    Err(CannotRegister::Locked)
}
