// SPDX-License-Identifier: GPL-2.0

//! PCI peer-to-peer memory: the pages of a BAR that the block layer can do DMA to.
//!
//! A BAR gets its pages from its device's driver, or from [`Memory::new`]; either way they stay
//! until that driver is unbound, whatever becomes of this module. The memory is never published, so
//! the kernel gives none of it to others; root can take some through the device's `p2pmem/allocate`
//! in sysfs, as it can write to the BAR through `resource*` there.
//!
//! A BAR can be found to have pages before they are made: the kernel enters the range first and
//! fills the memory map after, for seconds if the BAR is big. So nothing here looks at a page but
//! under the function's device lock, which is also what keeps the driver bound.
//!
//! C headers: `include/linux/pci-p2pdma.h`, `include/linux/memremap.h`.

use crate::{
    alloc::GFP_CHARGED,
    bindings,
    extents::{
        joined,
        locate,
        Extent, //
    },
    fault::{
        self,
        Point, //
    },
    kiocb::Segment,
    pci::{
        Bar,
        Function,
        Locked, //
    },
    platform, //
};
use core::{
    mem::MaybeUninit,
    ptr::{
        null_mut,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::{
    error::to_result,
    fmt,
    page::PAGE_SHIFT,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// How long a function that is locked by others is waited for.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE_MS: u32 = 10;

/// How many threads are adding a BAR's pages now, which takes as long as it takes.
static ADDING: Atomic<u32> = Atomic::new(0);

/// What the start and the length of memory with pages must be multiples of, in bytes: a subsection
/// of the memory map, 2 MiB on most machines.
fn alignment() -> u64 {
    // SAFETY: Returns a constant.
    let bytes = unsafe { bindings::memremap_compat_align() };
    // CAST: `usize` is at most 64 bits wide. `max` for the divisions to come.
    (bytes as u64).max(1)
}

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

    /// Whether its pages are all there; not while they are being made.
    fn is_ready(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_pgmap_is_ready(self.0.as_ptr()) }
    }

    /// An I/O priority that only bios with its pages have: no others are merged with them. `None`
    /// when there is none left. Costs the number of maps that ever had one.
    fn priority(&self) -> Option<u16> {
        // SAFETY: Returns a constant.
        if !unsafe { bindings::nvfs_helper_bios_keep_ioprio() } {
            return None;
        }
        let ours = self.0.as_ptr();
        let index = OWNERS.iter().position(|owner| {
            match owner.compare_exchange(null_mut(), ours, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(owner) => owner == ours,
            }
        })?;
        let hint = c_uint::try_from(FIRST_HINT + index).ok()?;
        // SAFETY: Only arithmetic.
        Some(unsafe { bindings::nvfs_helper_ioprio_with_hint(hint) })
    }

    /// Address of its last byte.
    fn last(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_pgmap_last(self.0.as_ptr()) }
    }
}

/// The hints of I/O priorities that page maps have.
const FIRST_HINT: usize = bindings::nvfs_ioprio_NVFS_IOPRIO_MAP as usize;
const HINTS: usize = bindings::nvfs_ioprio_NVFS_IOPRIO_MAPS as usize;

// Shadow memory has another.
const _: () = assert!(FIRST_HINT + HINTS <= bindings::nvfs_ioprio_NVFS_IOPRIO_SHADOW as usize);

/// The maps that have one, by hint; only compared. A new map at the address of one that is gone may
/// have its hint, as it has no bios under way any more.
static OWNERS: [AtomicPtr<bindings::dev_pagemap>; HINTS] =
    [const { AtomicPtr::new(null_mut()) }; HINTS];

impl Drop for PageMap {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_put_dev_pagemap(self.0.as_ptr()) }
    }
}

/// Why memory in a BAR cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The list of extents makes no sense: empty pieces, beyond the BAR, not whole pages.
    Malformed,
    /// Memory of our own is short.
    NoMemory,
    /// Start or length of the BAR is not a multiple of so many bytes.
    Alignment(u64),
    /// No driver has the device; one could not be bound after.
    Unbound,
    /// Its driver is being bound or unbound, or the device is being reset or suspended.
    Locked,
    /// A part of it has pages already, but not all that is needed.
    Partial,
    /// It has pages of another kind.
    Foreign,
    /// The kernel takes a part of it for RAM.
    Ram,
    /// It is at addresses that the kernel's map of memory does not reach.
    OutOfReach,
    /// The pages' descriptors need so many bytes, which are not free.
    Descriptors(u64),
    /// The CPU cannot clear memory in a BAR as it clears any other.
    Architecture,
    /// The kernel's own error.
    Kernel(Error),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the list of its pages is not inside one BAR"),
            Self::NoMemory => f.write_str("out of memory"),
            Self::Alignment(unit) => {
                write!(f, "its start or length is not a multiple of {} MiB", unit >> 20)
            }
            Self::Unbound => f.write_str("no driver is bound to the device"),
            Self::Locked => f.write_str("its driver is being bound or unbound"),
            Self::Partial => f.write_str("another driver made pages for a part of it"),
            Self::Foreign => f.write_str("another driver made pages of another kind for it"),
            Self::Ram => f.write_str("the kernel takes a part of it for RAM"),
            Self::OutOfReach => f.write_str(
                "it is at addresses beyond the kernel's map of memory (cure: kernel option nokaslr)",
            ),
            Self::Descriptors(bytes) => {
                let mib = bytes.div_ceil(1 << 20);
                write!(f, "the descriptors of its pages need {mib} MiB of free memory")
            }
            Self::Architecture => f.write_str("holes of files cannot be cleared in it on this CPU"),
            // `memremap_pages` says so when the BAR is mapped with other caching.
            Self::Kernel(e) if *e == EINVAL || *e == EBUSY => {
                f.write_str("its driver has it mapped with other caching than the kernel's")
            }
            Self::Kernel(e) => write!(f, "the kernel failed with error {}", e.to_errno()),
        }
    }
}

impl From<kernel::alloc::AllocError> for Unusable {
    fn from(_: kernel::alloc::AllocError) -> Self {
        Unusable::NoMemory
    }
}

/// Peer-to-peer memory in the order of a buffer.
///
/// # Invariants
///
/// - Each of `bvecs` is memory with peer-to-peer pages, kept by one of `maps`, and `kvecs` are the
///   same pieces as the CPU addresses them.
/// - `starts` has the place in the buffer of the first byte of each piece; together they have `len`
///   bytes.
/// - `priority` is that of the only one of `maps`, or `None`.
pub struct Memory {
    bvecs: KVVec<bindings::bio_vec>,
    kvecs: KVVec<bindings::kvec>,
    starts: KVVec<usize>,
    len: usize,
    priority: Option<u16>,
    maps: KVec<PageMap>,
}

/// The most bytes of one piece, a multiple of any page size: a `bio_vec` has 32 bits for them.
const MAX_PIECE: usize = 1 << 30;

// SAFETY: The addresses are only given to the kernel's own I/O code.
unsafe impl Send for Memory {}
// SAFETY: As above; it is not changed.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory at `extents`, all of which must be in the BAR: with the pages that the device's
    /// driver made or, if there are none, with pages that are now made for all of the BAR.
    ///
    /// May sleep. It costs one look-up for each extent; making the pages costs 64 bytes of memory
    /// for each 4 KiB of the BAR, and some milliseconds to seconds, once.
    pub fn new(function: &Function, bar: &Bar, extents: &[Extent]) -> Result<Self, Unusable> {
        check_architecture()?;
        let locked = lock(function)?;
        // It may have got another size, or never was this function's.
        if function.bar(bar.index) != Some(*bar) {
            return Err(Unusable::Malformed);
        }
        if let Some(memory) = Self::existing(bar, extents)? {
            return Ok(memory);
        }
        register(&locked, bar)?;
        Self::existing(bar, extents)?.ok_or(Unusable::Partial)
    }

    /// The memory at `extents`; `None` if a part has no pages. The function is locked.
    fn existing(bar: &Bar, extents: &[Extent]) -> Result<Option<Self>, Unusable> {
        let mut memory = Self {
            bvecs: KVVec::new(),
            kvecs: KVVec::new(),
            starts: KVVec::new(),
            len: 0,
            priority: None,
            maps: KVec::new(),
        };
        let page_mask = (1u64 << PAGE_SHIFT) - 1;
        for extent in joined(extents) {
            let extent = extent.map_err(|_| Unusable::Malformed)?;
            let end = extent.end().ok_or(Unusable::Malformed)?;
            if bar.offset_of(extent.phys).is_none()
                || end.saturating_sub(1) > bar.last()
                || (extent.phys | end) & page_mask != 0
            {
                return Err(Unusable::Malformed);
            }
            let mut rest = Some(extent);
            while let Some(part) = rest {
                let Some(last) = memory.map_around(part.phys)? else {
                    return Ok(None);
                };
                let last = last.min(part.phys.saturating_add(MAX_PIECE as u64 - 1));
                let (first, more) = part.split_after(last);
                if first.len == 0 {
                    return Err(Unusable::Malformed);
                }
                memory.push(first)?;
                rest = more;
            }
        }
        if let [map] = memory.maps.as_slice() {
            // INVARIANT: The only one.
            memory.priority = map.priority();
        }
        Ok(Some(memory))
    }

    /// Holds the map around an address, once for each map; returns its last address, or `None` if
    /// there is no map.
    fn map_around(&mut self, phys: u64) -> Result<Option<u64>, Unusable> {
        let Some(map) = PageMap::of(phys) else {
            return Ok(None);
        };
        if !map.is_p2pdma() {
            return Err(Unusable::Foreign);
        }
        if !map.is_ready() {
            return Err(Unusable::Locked);
        }
        let last = map.last();
        if !self.maps.iter().any(|held| held.0 == map.0) {
            self.maps.push(map, GFP_KERNEL)?;
        }
        Ok(Some(last))
    }

    /// Adds memory that one of the maps has.
    fn push(&mut self, extent: Extent) -> Result<(), Unusable> {
        let pfn = usize::try_from(extent.phys >> PAGE_SHIFT).map_err(|_| Unusable::Malformed)?;
        // SAFETY: Any number may be asked for.
        if !unsafe { bindings::nvfs_helper_pfn_is_pci_p2pdma(pfn) } {
            return Err(Unusable::Foreign);
        }
        // SAFETY: The map that is held has a page for this address.
        let page = unsafe { bindings::nvfs_helper_pfn_page(pfn) };
        let len = self
            .len
            .checked_add(extent.len)
            .ok_or(Unusable::Malformed)?;
        self.starts.push(self.len, GFP_CHARGED)?;
        self.bvecs.push(
            bindings::bio_vec {
                bv_page: page,
                bv_len: u32::try_from(extent.len).map_err(|_| Unusable::Malformed)?,
                bv_offset: 0,
            },
            GFP_CHARGED,
        )?;
        self.kvecs.push(
            bindings::kvec {
                // SAFETY: On a 64-bit kernel every page has an address.
                iov_base: unsafe { bindings::nvfs_helper_page_address(page) },
                iov_len: extent.len,
            },
            GFP_CHARGED,
        )?;
        // INVARIANT: All lists have one more, and the sum is right.
        self.len = len;
        Ok(())
    }

    /// `len` bytes from byte `offset` on; `None` if there are not so many. Costs the logarithm of
    /// the number of pieces.
    ///
    /// `scheduled`: the disk has an I/O scheduler, to which the priority of a bio means something.
    pub fn segment(self: Arc<Self>, offset: u64, len: u64, scheduled: bool) -> Option<Segment> {
        let offset = usize::try_from(offset).ok()?;
        let len = usize::try_from(len).ok()?;
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let (index, skip) = locate(&self.starts, self.len, offset)?;
        // SAFETY: By the type invariants: the kvecs from `index` on have all from `offset - skip`
        // to the end, which is at least `skip + len` bytes; `locate` gives a skip that is inside
        // the first of them.
        Some(unsafe { Segment::new(self, index, skip, len, scheduled) })
    }

    /// An iterator over the memory from piece `first` on, with `len` bytes behind the first `skip`.
    /// Returns the priority that its bios must have, if any. The iterator is valid while `self`
    /// lives.
    ///
    /// # Safety
    ///
    /// From piece `first` on there are `skip + len` bytes, and the first has more than `skip`.
    pub(crate) unsafe fn iterate(
        &self,
        write: bool,
        (first, skip, len): (usize, usize, usize),
        scheduled: bool,
        iter: &mut MaybeUninit<bindings::iov_iter>,
    ) -> Option<u16> {
        let priority = self.priority.filter(|_| !scheduled);
        if priority.is_some() {
            let pieces = self.bvecs.get(first..).unwrap_or(&[]);
            // SAFETY: By the safety requirements and the type invariants.
            unsafe {
                bindings::iov_iter_bvec(
                    iter.as_mut_ptr(),
                    c_uint::from(write),
                    pieces.as_ptr(),
                    pieces.len(),
                    len,
                )
            };
        } else {
            let pieces = self.kvecs.get(first..).unwrap_or(&[]);
            // SAFETY: As above.
            unsafe {
                bindings::iov_iter_kvec(
                    iter.as_mut_ptr(),
                    c_uint::from(write),
                    pieces.as_ptr(),
                    pieces.len(),
                    len,
                )
            };
        }
        // SAFETY: Initialized just now; by the safety requirements it is inside the first piece.
        unsafe { (*iter.as_mut_ptr()).iov_offset = skip };
        priority
    }
}

/// Locks a function.
///
/// Waiting for it could be for ever: who unbinds its driver holds the lock, and may wait for our
/// transfers to end. Only our own registrations, which wait for nobody, are waited for in any case.
fn lock(function: &Function) -> Result<Locked<'_>, Unusable> {
    let mut tries = 0;
    while tries < LOCK_TRIES && !platform::is_dying() {
        if let Some(locked) = function.try_lock() {
            return Ok(locked);
        }
        if ADDING.load(Relaxed) == 0 {
            tries += 1;
        }
        platform::sleep_ms(LOCK_PAUSE_MS);
    }
    Err(Unusable::Locked)
}

/// How much of a BAR has peer-to-peer pages, or is about to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coverage {
    None,
    Some,
    All,
}

fn coverage(bar: &Bar) -> Result<Coverage, Unusable> {
    let unit = alignment();
    let (mut with, mut without) = (false, false);
    let mut at = bar.start;
    while at <= bar.last() {
        // On to the end of the map, or to the next place where one can begin.
        let next = match PageMap::of(at) {
            Some(map) if !map.is_p2pdma() => return Err(Unusable::Foreign),
            Some(map) => {
                with = true;
                map.last().checked_add(1)
            }
            None => {
                without = true;
                (at - at % unit).checked_add(unit)
            }
        };
        let Some(next) = next.filter(|next| *next > at) else {
            break;
        };
        at = next;
    }
    Ok(match (with, without) {
        (true, false) => Coverage::All,
        (true, true) => Coverage::Some,
        (false, _) => Coverage::None,
    })
}

/// A file system clears what a hole would have filled with `memset`. The kernel maps the pages uncached
/// (`memremap_pages` in `mm/memremap.c`), which on arm64 is memory that its `memset` must not be used on:
/// `dc zva` faults there (`arch/arm64/lib/memset.S`). On x86 it is like any memory.
fn check_architecture() -> Result<(), Unusable> {
    if cfg!(CONFIG_X86_64) {
        Ok(())
    } else {
        Err(Unusable::Architecture)
    }
}

/// Whether memory in a BAR could be used, as far as it can be told without doing anything: either
/// its driver made pages for it (for some of it: those may be all that it gives away), or we can.
/// May sleep.
pub fn can_use(function: &Function, bar: &Bar) -> Result<(), Unusable> {
    check_architecture()?;
    match coverage(bar)? {
        Coverage::All | Coverage::Some => Ok(()),
        Coverage::None => can_add(function, bar),
    }
}

/// Whether a BAR without pages can be given some. All that the kernel would answer with a warning
/// and a backtrace is found here, see `pagemap_range` in `mm/memremap.c`, `__add_pages` in
/// `mm/memory_hotplug.c` and `add_pages` in `arch/x86/mm/init_64.c`.
fn can_add(function: &Function, bar: &Bar) -> Result<(), Unusable> {
    let unit = alignment();
    if bar.start % unit != 0 || bar.len % unit != 0 {
        return Err(Unusable::Alignment(unit));
    }
    if !function.is_bound() {
        return Err(Unusable::Unbound);
    }
    let len = usize::try_from(bar.len).map_err(|_| Unusable::OutOfReach)?;
    // SAFETY: Only looks at the tree of resources.
    let ram = unsafe {
        bindings::region_intersects(
            bar.start,
            len,
            // CAST: Flags, 32 bits wide.
            bindings::IORESOURCE_SYSTEM_RAM as c_ulong,
            bindings::IORES_DESC_NONE as c_ulong,
        )
    };
    if u32::try_from(ram) != Ok(bindings::REGION_DISJOINT) {
        return Err(Unusable::Ram);
    }
    // SAFETY: Only computes.
    let reach = unsafe { bindings::mhp_get_pluggable_range(true) };
    if bar.start < reach.start || bar.last() > reach.end {
        return Err(Unusable::OutOfReach);
    }
    // One descriptor a page, and a quarter on top for page tables and for others.
    let pages = bar.len >> PAGE_SHIFT;
    // CAST: The size of a type.
    let bytes = pages.saturating_mul(size_of::<bindings::page>() as u64);
    let bytes = bytes.saturating_add(bytes / 4);
    // SAFETY: Only reads counters.
    let free = unsafe { bindings::si_mem_available() };
    if u64::try_from(free).unwrap_or(0) < bytes >> PAGE_SHIFT {
        return Err(Unusable::Descriptors(bytes));
    }
    Ok(())
}

/// Makes sure that all of a BAR has peer-to-peer pages, for as long as its driver stays bound.
///
/// Follows `pci_p2pdma_add_resource` in `drivers/pci/p2pdma.c`.
fn register(locked: &Locked<'_>, bar: &Bar) -> Result<(), Unusable> {
    let function = locked.function();
    match coverage(bar)? {
        Coverage::All => return Ok(()),
        Coverage::Some => return Err(Unusable::Partial),
        Coverage::None => can_add(function, bar)?,
    }
    let index = c_int::try_from(bar.index).map_err(|_| Unusable::Malformed)?;
    if fault::fires(Point::MakePages) {
        return Err(Unusable::Kernel(ENXIO));
    }
    ADDING.fetch_add(1, Relaxed);
    // SAFETY: The function is live, bound and locked; 0 and 0 mean all of the BAR.
    let added = unsafe { bindings::pci_p2pdma_add_resource(function.as_ptr(), index, 0, 0) };
    // OVERFLOW: One was added above.
    ADDING.fetch_sub(1, Relaxed);
    to_result(added).map_err(|e| match e {
        ENOMEM => Unusable::NoMemory,
        e => Unusable::Kernel(e),
    })
}
