// SPDX-License-Identifier: GPL-2.0

//! PCI functions of the system, and where they are.
//!
//! The `kernel` crate only gives a driver the function that it is probed with; here one looks at
//! functions that belong to other drivers. A reference, [`Function`], keeps the `pci_dev` alive, but
//! neither the hardware nor what the kernel reaches it by: the function may be removed, and its host
//! bridge freed, at any time. A function that is on the bus and stays there is a [`Present`], of which
//! there are some only while the bus is looked at, see [`look`].
//!
//! C headers: `include/linux/pci.h`, `include/linux/pci-p2pdma.h`, `include/linux/srcu.h`.

use crate::bindings;
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    fmt,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed, //
    },
    types::NotThreadSafe, //
};

/// Root buses whose host bridge does not forward between peers, as the kernel has said since
/// functions came or went. There is room for a machine's; of more the kernel is asked each time.
static CLOSED: [Atomic<u64>; 16] = [const { Atomic::new(NO_ROOT) }; 16];

const NO_ROOT: u64 = u64::MAX;

/// How often [`reopen`] was called.
static CHANGES: Atomic<u64> = Atomic::new(0);

/// Keeps that a root bus is closed, unless it was asked for before the last change.
fn close(root: u64, changes: u64) {
    let kept = CLOSED
        .iter()
        .find(|closed| match closed.cmpxchg(NO_ROOT, root, Full) {
            Ok(_) => true,
            Err(there) => there == root,
        });
    // Either we see the change here, or `reopen` sees what we kept: both order the two by `Full`.
    if CHANGES.load(Relaxed) != changes {
        if let Some(kept) = kept {
            let _ = kept.cmpxchg(root, NO_ROOT, Relaxed);
        }
    }
}

/// Functions come or go, and a root bus may get another host bridge: the kernel is asked again.
/// Callable in any context.
pub(crate) fn reopen() {
    CHANGES.fetch_add(1, Full);
    for closed in &CLOSED {
        closed.store(NO_ROOT, Relaxed);
    }
}

/// Where a function is: domain, bus, device and function number.
///
/// Shown as Linux writes it, `0000:03:00.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    domain: u32,
    bus: u8,
    devfn: u8,
}

impl Address {
    /// From the number `domain << 32 | bus << 8 | devfn`; `None` if other bits are set.
    pub fn from_pdevinfo(info: u64) -> Option<Self> {
        Some(Self {
            domain: u32::try_from(info >> 32).ok()?,
            bus: u8::try_from((info >> 8) & 0xff_ffff).ok()?,
            devfn: u8::try_from(info & 0xff).ok()?,
        })
    }

    /// The number `domain << 32 | bus << 8 | devfn`.
    pub fn to_pdevinfo(self) -> u64 {
        u64::from(self.domain) << 32 | u64::from(self.bus) << 8 | u64::from(self.devfn)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_fmt(core::format_args!(
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain,
            self.bus,
            self.devfn >> 3,
            self.devfn & 7
        ))
    }
}

/// A memory BAR that has been given addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    /// Number, 0 to 5.
    pub index: u32,
    /// Physical address of the first byte, as the CPU sees it.
    pub start: u64,
    /// Bytes, not 0.
    pub len: u64,
    /// Reading has no side effects.
    pub prefetchable: bool,
    /// Takes 64-bit addresses.
    pub wide: bool,
}

impl Bar {
    /// Address of the last byte.
    pub fn last(&self) -> u64 {
        self.start.saturating_add(self.len.saturating_sub(1))
    }

    /// How far into the BAR an address is; `None` when it is outside.
    pub fn offset_of(&self, phys: u64) -> Option<u64> {
        phys.checked_sub(self.start).filter(|o| *o < self.len)
    }
}

/// More bridges than there can be above a function.
const MAX_BRIDGES: usize = 256;

/// The kernel's distance of two NUMA nodes: 10 of a node to itself.
pub fn node_distance(a: u32, b: u32) -> u32 {
    let (Ok(a), Ok(b)) = (c_int::try_from(a), c_int::try_from(b)) else {
        return u32::MAX;
    };
    // SAFETY: The kernel checks the numbers.
    let distance = unsafe { bindings::nvfs_helper_node_distance(a, b) };
    u32::try_from(distance).unwrap_or(u32::MAX)
}

/// A PCI function, which may have been removed: only what its `pci_dev` itself has can be asked for.
///
/// # Invariants
///
/// One reference on the `pci_dev` is owned.
pub struct Function(NonNull<bindings::pci_dev>);

// SAFETY: The reference count is atomic, and a reference belongs to no thread.
unsafe impl Send for Function {}
// SAFETY: All that is read is set before the function can be found, or is a racy hint.
unsafe impl Sync for Function {}

impl Function {
    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `pdev` is valid during the call.
    unsafe fn hold(pdev: NonNull<bindings::pci_dev>) -> Self {
        // SAFETY: By the caller's promise.
        unsafe { bindings::pci_dev_get(pdev.as_ptr()) };
        // INVARIANT: Just taken.
        Self(pdev)
    }

    /// The function that a device, or the nearest of its ancestors, is.
    ///
    /// # Safety
    ///
    /// `dev` is NULL or valid during the call, and so are its ancestors.
    pub(crate) unsafe fn of_device(mut dev: *mut bindings::device) -> Option<Self> {
        while !dev.is_null() {
            // SAFETY: `dev` is valid.
            let pdev = unsafe { bindings::nvfs_helper_as_pci_dev(dev) };
            if let Some(pdev) = NonNull::new(pdev) {
                // SAFETY: It contains `dev`, which is valid.
                return Some(unsafe { Self::hold(pdev) });
            }
            // SAFETY: `dev` is valid.
            dev = unsafe { (*dev).parent };
        }
        None
    }

    /// The function in whose memory BAR a physical address is, the number of the BAR, and how far
    /// in it the address is. Windows of bridges are no BARs. May sleep.
    pub fn containing(phys: u64) -> Option<(Self, u32, u64)> {
        look(|bus| {
            bus.find_map(|function| {
                let (index, offset) = function
                    .bars()
                    .find_map(|bar| Some((bar.index, bar.offset_of(phys)?)))?;
                Some((Function::clone(function), index, offset))
            })
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut bindings::pci_dev {
        self.0.as_ptr()
    }

    pub(crate) fn device(&self) -> *mut bindings::device {
        // SAFETY: By the type invariant the `pci_dev` is live.
        unsafe { &raw mut (*self.as_ptr()).dev }
    }

    /// Gives the reference away.
    pub(crate) fn into_raw(self) -> *mut bindings::pci_dev {
        ManuallyDrop::new(self).as_ptr()
    }

    /// Takes a reference over.
    ///
    /// # Safety
    ///
    /// `pdev` is null, or from [`into_raw`](Self::into_raw) and used once.
    pub(crate) unsafe fn from_raw(pdev: *mut bindings::pci_dev) -> Option<Self> {
        // INVARIANT: By the safety requirements.
        NonNull::new(pdev).map(Self)
    }

    /// The PCI function that `device` is, without taking a reference; `None` for other devices.
    /// Callable in any context.
    ///
    /// # Safety
    ///
    /// `device` is null, or valid for as long as the result is used.
    pub(crate) unsafe fn borrow(device: *mut bindings::device) -> Option<ManuallyDrop<Self>> {
        if device.is_null() {
            return None;
        }
        // SAFETY: By the safety requirements.
        let pdev = unsafe { bindings::nvfs_helper_as_pci_dev(device) };
        // INVARIANT: The reference is the caller's, and is not dropped.
        NonNull::new(pdev).map(|pdev| ManuallyDrop::new(Self(pdev)))
    }

    /// Where it is, or was.
    pub fn address(&self) -> Address {
        let pdev = self.as_ptr();
        // SAFETY: By the type invariant; the name is there until the last reference goes.
        let domain = unsafe { bindings::nvfs_helper_pci_domain_by_name(pdev) };
        // SAFETY: As above; the function holds its bus.
        let bus = unsafe { (*(*pdev).bus).number };
        // SAFETY: As above.
        let devfn = unsafe { (*pdev).devfn };
        Address {
            domain,
            bus,
            // CAST: Eight bits by definition.
            devfn: (devfn & 0xff) as u8,
        }
    }

    /// Vendor number.
    pub fn vendor(&self) -> u16 {
        // SAFETY: By the type invariant.
        unsafe { (*self.as_ptr()).vendor }
    }

    /// Class code: base class, sub-class and programming interface, 24 bits.
    pub fn class(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { (*self.as_ptr()).class }
    }

    /// Whether a driver is bound; may change at any time unless the function is locked.
    pub fn is_bound(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::device_is_bound(self.device()) }
    }

    /// A memory BAR; `None` if it is not one, or has no addresses.
    pub fn bar(&self, index: u32) -> Option<Bar> {
        let n = c_int::try_from(index)
            .ok()
            .filter(|_| index < bindings::PCI_STD_NUM_BARS)?;
        // SAFETY: The function is live and `n` is in range.
        let flags = unsafe { bindings::nvfs_helper_pci_resource_flags(self.as_ptr(), n) };
        let has = |flag: u32| u32::try_from(flags).unwrap_or(0) & flag != 0;
        if !has(bindings::IORESOURCE_MEM) || has(bindings::IORESOURCE_UNSET) {
            return None;
        }
        // SAFETY: As above.
        let start = unsafe { bindings::nvfs_helper_pci_resource_start(self.as_ptr(), n) };
        // SAFETY: As above.
        let len = unsafe { bindings::nvfs_helper_pci_resource_len(self.as_ptr(), n) };
        (len != 0).then_some(Bar {
            index,
            start,
            len,
            prefetchable: has(bindings::IORESOURCE_PREFETCH),
            wide: has(bindings::IORESOURCE_MEM_64),
        })
    }

    /// All memory BARs.
    pub fn bars(&self) -> impl Iterator<Item = Bar> + '_ {
        (0..bindings::PCI_STD_NUM_BARS).filter_map(|index| self.bar(index))
    }

    /// Its NUMA node, if known.
    pub fn node(&self) -> Option<u32> {
        // SAFETY: By the type invariant.
        u32::try_from(unsafe { bindings::nvfs_helper_dev_to_node(self.device()) }).ok()
    }

    /// Locks the function against its driver being bound, unbound or suspended, unless that is
    /// under way now.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        // SAFETY: By the type invariant.
        let locked = unsafe { bindings::nvfs_helper_device_trylock(self.device()) };
        // INVARIANT: Locked just now. Not `then_some`: a guard that is made and dropped when the
        // lock was not got would unlock what others hold.
        locked.then(|| Locked(self))
    }
}

impl Clone for Function {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { Self::hold(self.0) }
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Drop for Function {
    /// May sleep.
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::pci_dev_put(self.as_ptr()) }
    }
}

/// A function whose device lock is held.
///
/// # Invariants
///
/// The lock is held, by the current task.
pub(crate) struct Locked<'a>(&'a Function);

impl Locked<'_> {
    /// The locked function.
    pub(crate) fn function(&self) -> &Function {
        self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_device_unlock(self.0.device()) }
    }
}

/// How many watches there are, see [`begin_watch`].
static WATCHES: Atomic<i32> = Atomic::new(0);

/// From now on, functions can be found.
///
/// # Safety
///
/// Until the [`end_watch`] that belongs to it, [`removed`] is called for each event
/// `BUS_NOTIFY_REMOVED_DEVICE` of the PCI bus.
pub(crate) unsafe fn begin_watch() {
    WATCHES.fetch_add(1, Full);
}

/// The end of a watch. Unless there are others, no functions are found any more, and nobody looks at
/// one when this returns. May sleep.
pub(crate) fn end_watch() {
    WATCHES.fetch_add(-1, Full);
    removed();
}

/// A function was taken off the bus: waits for those who may have found it before. May sleep.
pub(crate) fn removed() {
    // SAFETY: Nobody who looks at the bus comes here: that one waits for no removal.
    unsafe { bindings::nvfs_helper_pci_wait_for_looks() };
}

/// The PCI bus while it is looked at, see [`look`].
///
/// # Invariants
///
/// The task is in a read section that `removed` waits for. `watched` is false, or there was a watch
/// when the section had begun: as the end of a watch waits for the section as well, `removed` is
/// called for all functions that are taken off the bus before it ends.
pub struct Bus {
    watched: bool,
    section: c_int,
    noio: c_uint,
    _task: NotThreadSafe,
}

/// Looks at the functions that are on the bus: those that `f` finds stay there until it returns, as
/// whoever removes one meanwhile waits for that, with locks held.
///
/// So `f` may sleep, but not for long, and must not wait for what who removes may hold: device locks,
/// `open_mutex` of disks, the lock of rescans, and what others hold who wait for these. What it
/// allocates does not wait for I/O. May sleep.
pub fn look<R>(f: impl FnOnce(&Bus) -> R) -> R {
    let mut noio = 0;
    // SAFETY: Ended by `drop`, in this task and, as `Bus` is made nowhere else, in reverse order.
    let section = unsafe { bindings::nvfs_helper_pci_look_begin(&raw mut noio) };
    // INVARIANT: The section has just begun, and the watches are looked at after that.
    let bus = Bus {
        watched: WATCHES.load(Acquire) > 0,
        section,
        noio,
        _task: NotThreadSafe,
    };
    f(&bus)
}

impl Drop for Bus {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the numbers are those of its begin.
        unsafe { bindings::nvfs_helper_pci_look_end(self.section, self.noio) };
    }
}

impl Bus {
    /// What `f` has for the first function for which it has anything, in the kernel's order, which is
    /// that of discovery. Each function is visited once, unless it comes or goes meanwhile.
    pub fn find_map<R, F>(&self, f: F) -> Option<R>
    where
        F: FnMut(&Present<'_>) -> Option<R>,
    {
        let mut visit = Visit { f, found: None };
        if self.watched {
            // SAFETY: The callback gets this visit back, and the bus is looked at.
            unsafe {
                bindings::bus_for_each_dev(
                    &raw const bindings::pci_bus_type,
                    null_mut(),
                    (&raw mut visit).cast(),
                    Some(visit_one::<R, F>),
                )
            };
        }
        visit.found
    }

    /// Calls `f` for each function in that order, until it fails.
    pub fn try_each(&self, mut f: impl FnMut(&Present<'_>) -> Result) -> Result {
        self.find_map(|function| f(function).err())
            .map_or(Ok(()), Err)
    }

    /// The function, if it is on the bus.
    pub fn find(&self, function: &Function) -> Option<Present<'_>> {
        if !self.watched {
            return None;
        }
        // SAFETY: Only compares the pointer.
        let found = unsafe { bindings::nvfs_helper_pci_is_on_bus(function.as_ptr()) };
        // INVARIANT: Found just now, while it is looked at.
        found.then(|| Present {
            function: function.clone(),
            _bus: PhantomData,
        })
    }
}

/// A visit of all functions, see [`Bus::find_map`].
struct Visit<R, F> {
    f: F,
    found: Option<R>,
}

/// # Safety
///
/// Only for [`Bus::find_map`].
unsafe extern "C" fn visit_one<R, F>(device: *mut bindings::device, visit: *mut c_void) -> c_int
where
    F: FnMut(&Present<'_>) -> Option<R>,
{
    // SAFETY: `find_map` lends its visit to this call.
    let visit = unsafe { &mut *visit.cast::<Visit<R, F>>() };
    // SAFETY: The driver core holds the device during the call.
    let Some(function) = (unsafe { Function::borrow(device) }) else {
        return 0;
    };
    // INVARIANT: Found just now, while it is looked at. The reference is the driver core's, and is not
    // dropped.
    let present = ManuallyDrop::new(Present {
        function: ManuallyDrop::into_inner(function),
        _bus: PhantomData,
    });
    visit.found = (visit.f)(&present);
    c_int::from(visit.found.is_some())
}

/// A function that is on the bus.
///
/// # Invariants
///
/// It, or a function below it, was found on the bus during the section of the [`Bus`]. It has all that
/// its configuration space is reached by, its bridges and its host bridge until that section ends:
/// whoever removes a function takes it off the list that it was found in, then waits for `removed`,
/// and goes on to what is above it only after that. (A virtual function is below its physical one:
/// the kernel removes it first.)
pub struct Present<'a> {
    function: Function,
    _bus: PhantomData<&'a Bus>,
}

impl Deref for Present<'_> {
    type Target = Function;

    fn deref(&self) -> &Function {
        &self.function
    }
}

impl PartialEq for Present<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl<'a> Present<'a> {
    /// The bridges above it, nearest first.
    fn bridges(&self) -> impl Iterator<Item = Present<'a>> + '_ {
        let mut pdev = self.as_ptr();
        core::iter::from_fn(move || {
            // SAFETY: By the type invariant. A function holds its bus, and that the bridge to it.
            pdev = unsafe { bindings::nvfs_helper_pci_upstream_bridge(pdev) };
            // SAFETY: As above.
            let function = unsafe { Function::hold(NonNull::new(pdev)?) };
            // INVARIANT: `self`, or what made it one, is below it.
            Some(Present {
                function,
                _bus: PhantomData,
            })
        })
        // The list ends at the root bus; this bounds it in any case.
        .take(MAX_BRIDGES)
        .fuse()
    }

    /// The bridges above it, nearest first; `None` if they have no end.
    pub fn upstream(&self) -> Result<Option<KVec<Present<'a>>>> {
        let mut upstream = KVec::new();
        for bridge in self.bridges() {
            upstream.push(bridge, GFP_KERNEL)?;
        }
        Ok((upstream.len() < MAX_BRIDGES).then_some(upstream))
    }

    /// Capability and control word of the ACS capability, read now; `None` without one, or when
    /// the function does not answer.
    pub fn acs(&self) -> Option<(u16, u16)> {
        // SAFETY: By the type invariant; set before the function can be found.
        let at = unsafe { (*self.as_ptr()).acs_cap };
        if at == 0 {
            return None;
        }
        let word = |offset: u32| {
            let at = c_int::from(at).checked_add(c_int::try_from(offset).ok()?)?;
            let mut word = 0;
            // SAFETY: By the type invariant: it is on the bus.
            let error = unsafe { bindings::pci_read_config_word(self.as_ptr(), at, &raw mut word) };
            // All ones is what a function reads as that is gone or asleep.
            (error == 0 && word != u16::MAX).then_some(word)
        };
        Some((word(bindings::PCI_ACS_CAP)?, word(bindings::PCI_ACS_CTRL)?))
    }

    /// Status word of the PCI Express link, read now; 0 without one.
    pub fn link_status(&self) -> u16 {
        let mut status = 0;
        // On an error it stays, or is set to, 0.
        //
        // SAFETY: By the type invariant: it is on the bus.
        unsafe {
            bindings::pcie_capability_read_word(
                self.as_ptr(),
                // CAST: A small number.
                bindings::PCI_EXP_LNKSTA as c_int,
                &raw mut status,
            )
        };
        status
    }

    /// Whether both are below one root port.
    pub fn shares_bridge_with(&self, other: &Present<'_>) -> bool {
        self.bridges().any(|a| other.bridges().any(|b| a == b))
    }

    /// Steps from `self`, whose memory is used, to `client`, which does the DMA; `None` when the
    /// kernel does not allow peer-to-peer DMA between them. 0 is the same function, 4 is two
    /// devices at one switch.
    ///
    /// May sleep. The kernel itself logs a line "Host bridge not in P2PDMA whitelist" when ACS
    /// redirect is set on the way; it can't be told not to, but is asked once for a host bridge,
    /// until functions come or go.
    ///
    /// Follows `pci_p2pdma_distance_many` in `drivers/pci/p2pdma.c`.
    pub fn distance_to(&self, client: &Present<'_>) -> Option<u32> {
        let root = self.redirected_to(client);
        if root.is_some_and(|root| CLOSED.iter().any(|closed| closed.load(Relaxed) == root)) {
            return None;
        }
        let changes = CHANGES.load(Acquire);
        let distance = self.ask_distance_to(client);
        if let (None, Some(root)) = (distance, root) {
            close(root, changes);
        }
        distance
    }

    /// The root bus that ACS sends the traffic between two functions up to although they share a
    /// bridge, by number; `None` if it does not. May sleep.
    ///
    /// Follows `calc_map_type_and_dist` in `drivers/pci/p2pdma.c`.
    fn redirected_to(&self, client: &Present<'_>) -> Option<u64> {
        let (mine, theirs) = (self.and_upstream()?, client.and_upstream()?);
        let common = mine.iter().position(|function| theirs.contains(function))?;
        let meeting = mine.get(common)?;
        let redirected = mine.iter().take(common + 1).any(Self::redirects)
            || theirs
                .iter()
                .take_while(|function| *function != meeting)
                .any(Present::redirects);
        let top = mine.last()?.address();
        redirected.then_some(top.to_pdevinfo() >> 8)
    }

    /// The function and the bridges above it, nearest first.
    fn and_upstream(&self) -> Option<KVec<Present<'a>>> {
        let mut all = KVec::new();
        // INVARIANT: As `self`.
        let this = Present {
            function: self.function.clone(),
            _bus: PhantomData,
        };
        all.push(this, GFP_KERNEL).ok()?;
        for bridge in self.upstream().ok()?? {
            all.push(bridge, GFP_KERNEL).ok()?;
        }
        Some(all)
    }

    /// Whether ACS sends peer-to-peer traffic up from here.
    fn redirects(&self) -> bool {
        let bits = bindings::PCI_ACS_RR | bindings::PCI_ACS_CR | bindings::PCI_ACS_EC;
        self.acs()
            .is_some_and(|(_, control)| u32::from(control) & bits != 0)
    }

    fn ask_distance_to(&self, client: &Present<'_>) -> Option<u32> {
        let mut clients = [client.device()];
        // SAFETY: By the type invariant both functions, and their host bridges, are there; the array has
        // one entry.
        let distance = unsafe {
            bindings::pci_p2pdma_distance_many(self.as_ptr(), clients.as_mut_ptr(), 1, false)
        };
        u32::try_from(distance).ok()
    }
}
