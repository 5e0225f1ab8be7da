// SPDX-License-Identifier: GPL-2.0

//! Whether data can go straight between a file and a GPU, by P2PDMA, and why not.
//!
//! Decided before the first byte moves, and remembered for the file that a buffer was last used
//! with. `docs/design.md` has the table of conditions in their order.

use crate::{
    counters::Total,
    params::{
        self,
        P2pdma, //
    },
    topology,
    vendors::Vendors, //
};
use kernel::{
    alloc::AllocError,
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        new_mutex,
        Mutex, //
    },
};
use nvfs_kernel::{
    block::{
        self,
        Disk,
        Membership,
        Name, //
    },
    extents::Extent,
    file::IoFile,
    p2pdma::{
        self,
        Memory,
        Unusable, //
    },
    pci::{
        self,
        Address,
        Bar,
        Function, //
    },
};

/// Magic numbers of the file systems that have all data of a file on one block device (XFS: unless it
/// is a realtime file), and read and write it there without looking at it (XFS: unless writes must be
/// stable).
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;

/// How many disks a stacked one may be made of, over all levels.
const MAX_MEMBERS: usize = 1024;

/// The most that offsets may have to be aligned to, in bytes: the unit of all requests.
const BLOCK: u32 = 4096;

/// `EREMOTEIO`, which the kernel crate of older kernels does not name.
const EREMOTEIO: c_int = 121;

/// `EOPNOTSUPP`, likewise.
const EOPNOTSUPP: c_int = 95;

/// Why there is no way between a file and a GPU.
pub(crate) enum Refusal {
    /// `p2pdma=off`, and the storage driver has no hooks.
    Off,
    /// The GPU memory is in no BAR.
    NoGpu,
    /// The memory in the GPU's BAR cannot be used.
    Bar(Address, Unusable),
    /// Memory of our own is short.
    NoMemory,
    /// Neither a regular file nor a block device.
    Kind,
    /// The file system has no block device, or several.
    NoDevice(u64),
    /// It is not known where the file system has its data.
    FileSystem(u64),
    /// The file system maps its data directly.
    Dax,
    /// The file system does not read and write this file directly.
    Buffered(u64),
    /// The file system does not say whether it reads and writes directly.
    Unknown(u64),
    /// The file needs a coarser alignment than requests have.
    Alignment(u32),
    /// The data is on another device than the file system's.
    Realtime,
    /// XFS copies the data.
    StableWrites,
    /// The disk is made of others whose drivers have hooks, but may read or change data itself.
    Stacked(Name),
    /// The disk's driver does not take peer-to-peer pages.
    Driver {
        gpu: Address,
        drive: Option<Address>,
        disk: Name,
    },
    /// The disk is not on the PCI bus, nor made of others that are; or it was just removed.
    NotPci { gpu: Address, disk: Name },
    /// The GPU driver does not map the memory for the drive.
    Mapping { drive: Address, error: c_int },
    /// The topology does not let the drive reach the GPU.
    Topology {
        gpu: Address,
        drive: Address,
        disk: Name,
        /// There is a common switch, but it sends everything up to the host bridge.
        redirected: bool,
    },
}

impl Refusal {
    /// What it is counted as.
    pub(crate) fn total(&self) -> Total {
        match self {
            Self::Off => Total::RefusedOff,
            Self::NoGpu => Total::RefusedNoGpu,
            Self::Bar(..) => Total::RefusedBar,
            Self::NoMemory => Total::RefusedNoMemory,
            Self::Kind => Total::RefusedKind,
            Self::NoDevice(_) => Total::RefusedNoDevice,
            Self::FileSystem(_) => Total::RefusedFileSystem,
            Self::Dax => Total::RefusedDax,
            Self::Buffered(_) => Total::RefusedBuffered,
            Self::Unknown(_) => Total::RefusedUnknown,
            Self::Alignment(_) => Total::RefusedAlignment,
            Self::Realtime => Total::RefusedRealtime,
            Self::StableWrites => Total::RefusedStableWrites,
            Self::Stacked(_) => Total::RefusedStacked,
            Self::Driver { .. } => Total::RefusedDriver,
            Self::NotPci { .. } => Total::RefusedNotPci,
            Self::Mapping { .. } => Total::RefusedMapping,
            Self::Topology { .. } => Total::RefusedTopology,
        }
    }

    /// What the user is told.
    pub(crate) fn errno(&self) -> Error {
        match self {
            Self::Topology { .. } => Error::from_errno(-EREMOTEIO),
            Self::NoMemory => ENOMEM,
            Self::Mapping { .. } => EIO,
            _ => Error::from_errno(-EOPNOTSUPP),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str(
                "P2PDMA is off and no storage driver with nvidia-fs hooks has the device (cure: p2pdma=auto)",
            ),
            Self::NoGpu => f.write_str("the GPU memory is in no PCI BAR"),
            Self::Bar(gpu, why) => f.write_fmt(fmt!("GPU {gpu}: the memory in its BAR cannot be used by peers: {why}")),
            Self::NoMemory => f.write_str("out of memory"),
            Self::Kind => f.write_str("neither a regular file nor a block device"),
            Self::NoDevice(magic) => f.write_fmt(fmt!("file system {magic:#x} is not on one block device (cure: ext4 or xfs on NVMe)")),
            Self::FileSystem(magic) => f.write_fmt(fmt!("file system {magic:#x} may have its data elsewhere than on its block device, or read or change it by the CPU (cure: ext4 or xfs)")),
            Self::Dax => f.write_str("the file is DAX, there is no DMA (cure: mount -o dax=never)"),
            Self::Buffered(magic) => f.write_fmt(fmt!("file system {magic:#x} does no direct I/O on this file (data journalling, inline data, encryption or verity?)")),
            Self::Unknown(magic) => f.write_fmt(fmt!("file system {magic:#x} does not tell whether it does direct I/O (cure: ext4 or xfs)")),
            Self::Alignment(unit) => f.write_fmt(fmt!("direct I/O on this file needs multiples of {unit} bytes, more than 4096")),
            Self::Realtime => f.write_str("the data is on the XFS realtime device"),
            Self::StableWrites => f.write_str("XFS copies the data of this file by the CPU, for a disk that needs stable pages (cure: 0 in queue/stable_writes of the disk, then mount again)"),
            Self::Stacked(disk) => f.write_fmt(fmt!("{disk} may read or change data by the CPU, above the nvidia-fs hooks (cure: the disks below it, or md raid0/1/10 of them; no dm, no raid4/5/6)")),
            Self::Driver { gpu, drive, disk } => {
                f.write_fmt(fmt!("GPU {gpu} and {disk}"))?;
                if let Some(drive) = drive {
                    f.write_fmt(fmt!(" (drive {drive})"))?;
                }
                f.write_str(": its driver takes no peer-to-peer pages (cure: plain NVMe, or md raid0/1/10 of it; no dm, no loop)")
            }
            Self::NotPci { gpu, disk } => f.write_fmt(fmt!("GPU {gpu} and {disk}: it is on no PCI function (cure: local NVMe)")),
            Self::Mapping { drive, error } => f.write_fmt(fmt!("the GPU driver does not map GPU memory for drive {drive}: error {error}")),
            Self::Topology { gpu, drive, disk, redirected: false } => f.write_fmt(fmt!("GPU {gpu} and drive {drive} ({disk}) cannot reach each other: no common PCIe switch, and the host bridge is not known to forward (cure: a slot under one switch, or another CPU)")),
            Self::Topology { gpu, drive, disk, redirected: true } => f.write_fmt(fmt!("GPU {gpu} and drive {drive} ({disk}) cannot reach each other: ACS sends all traffic of their common switch to the host bridge, which is not known to forward (cure: ACS off in the BIOS, or kernel option pci=disable_acs_redir=)")),
        }
    }
}

/// A GPU and the BAR that its memory is in.
pub(crate) struct Gpu {
    function: Function,
    bar: Bar,
}

impl Gpu {
    /// The GPU that has a physical address. What the user says of the GPU is not asked. May sleep.
    pub(crate) fn of(phys: u64) -> Result<Self, Refusal> {
        let (function, index, _) = Function::containing(phys).ok_or(Refusal::NoGpu)?;
        let bar = function.bar(index).ok_or(Refusal::NoGpu)?;
        Ok(Self { function, bar })
    }

    /// The pages of its memory at `extents`, those that its driver made or, if there are none,
    /// those that we make for all of the BAR. May sleep.
    pub(crate) fn memory(&self, extents: &[Extent]) -> Result<Memory, Refusal> {
        Memory::new(&self.function, &self.bar, extents).map_err(|why| match why {
            Unusable::NoMemory => Refusal::NoMemory,
            why => Refusal::Bar(self.function.address(), why),
        })
    }

    /// Whether a disk, and each that it is made of, can reach it; returns whether one of them has an
    /// I/O scheduler. May sleep.
    fn reaches(&self, disk: &Disk) -> Result<bool, Refusal> {
        let gpu = self.function.address();
        let mut scheduled = false;
        let mut disks = KVec::new();
        disks.push(disk.clone(), GFP_KERNEL)?;
        let mut next = 0;
        while let Some(disk) = disks.get(next).cloned() {
            next += 1;
            scheduled |= disk.has_scheduler();
            let function = disk.pci_function();
            if !disk.takes_p2pdma() {
                return Err(Refusal::Driver {
                    gpu,
                    drive: function.map(|drive| drive.address()),
                    disk: disk.name(),
                });
            }
            match function {
                Some(drive) => self.reaches_drive(&drive, &disk)?,
                None => {
                    let members = disk.members().map_err(|_| Refusal::NoMemory)?;
                    if members.is_empty() || members.len() + disks.len() > MAX_MEMBERS {
                        return Err(Refusal::NotPci {
                            gpu,
                            disk: disk.name(),
                        });
                    }
                    for member in members {
                        disks.push(member, GFP_KERNEL)?;
                    }
                }
            }
        }
        Ok(scheduled)
    }

    /// Whether the kernel allows DMA between a drive and its memory.
    fn reaches_drive(&self, drive: &Function, disk: &Disk) -> Result<(), Refusal> {
        let gpu = self.function.address();
        pci::look(|bus| {
            let function = bus.find(&self.function).ok_or(Refusal::NoGpu)?;
            let Some(present) = bus.find(drive) else {
                return Err(Refusal::NotPci {
                    gpu,
                    disk: disk.name(),
                });
            };
            match function.distance_to(&present) {
                Some(_) => Ok(()),
                None => Err(Refusal::Topology {
                    gpu,
                    drive: drive.address(),
                    disk: disk.name(),
                    redirected: function.shares_bridge_with(&present),
                }),
            }
        })
    }
}

impl From<AllocError> for Refusal {
    fn from(_: AllocError) -> Self {
        Self::NoMemory
    }
}

/// How data goes between files and GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Through shadow pages, by the hooks of the storage driver.
    Callback,
    /// By the kernel's own P2PDMA.
    P2pdma,
}

/// A way that was found for a file and a GPU.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) way: Way,
    /// A disk on the way has an I/O scheduler.
    pub(crate) scheduled: bool,
    /// The file is on a local disk, or is one.
    pub(crate) on_disk: bool,
    /// The file system has blocks of less than 4 KiB.
    pub(crate) fine: bool,
}

impl Route {
    /// The way of a file.
    pub(crate) fn new(way: Way, file: &IoFile, scheduled: bool) -> Self {
        Self {
            way,
            scheduled,
            on_disk: block::sequence_of(file).is_some(),
            fine: !file.is_block_device() && file.block_size() < u64::from(BLOCK),
        }
    }
}

/// What does the DMA for a file whose data goes through hooks.
pub(crate) struct Peers {
    /// As far as they are known.
    pub(crate) functions: KVec<Function>,
    /// A disk on the way has an I/O scheduler.
    pub(crate) scheduled: bool,
}

/// The PCI functions that do the DMA for a disk whose driver, or the drivers of all disks that it is
/// made of, have our tables. `None` when there is one that has not. Refused when data may be read or
/// changed on its way there: shadow pages have none. May sleep.
fn hooked(vendors: &Vendors, disk: &Disk) -> Result<Option<Peers>, Refusal> {
    let mut functions = KVec::new();
    let mut scheduled = false;
    let mut opaque = None;
    let mut disks = KVec::new();
    disks.push(disk.clone(), GFP_KERNEL)?;
    let mut next = 0;
    while let Some(disk) = disks.get(next).cloned() {
        next += 1;
        scheduled |= disk.has_scheduler();
        if vendors.serve_disk(&disk) {
            if let Some(function) = disk.pci_function() {
                functions.push(function, GFP_KERNEL)?;
            }
            continue;
        }
        let members = disk.members().map_err(|_| Refusal::NoMemory)?;
        if members.is_empty() || members.len() + disks.len() > MAX_MEMBERS {
            return Ok(None);
        }
        if opaque.is_none() && !disk.passes_pages_through() {
            opaque = Some(disk.name());
        }
        for member in members {
            disks.push(member, GFP_KERNEL)?;
        }
    }
    if let Some(disk) = opaque {
        return Err(Refusal::Stacked(disk));
    }
    Ok(Some(Peers {
        functions,
        scheduled,
    }))
}

/// Whether a file's data goes through hooks, and then by which peers. May sleep.
pub(crate) fn callback(vendors: &Vendors, file: &IoFile) -> Result<Option<Peers>, Refusal> {
    if params::p2pdma() == P2pdma::Only || vendors.is_empty() {
        return Ok(None);
    }
    let network = vendors.serve_file_system(file);
    let peers = if network {
        Some(Peers {
            functions: KVec::new(),
            scheduled: false,
        })
    } else {
        match Disk::of_file(file) {
            Some(disk) => hooked(vendors, &disk)?,
            None => None,
        }
    };
    if peers.is_some() {
        if !file.is_block_device() && file.is_dax() {
            return Err(Refusal::Dax);
        }
        match is_direct(file) {
            // Network file systems need not tell.
            Err(Refusal::Unknown(_)) if network => (),
            direct => direct?,
        }
        if !network {
            is_plain(file)?;
        }
    }
    Ok(peers)
}

/// Whether the file system reads and writes a file directly, in units that requests have. May sleep.
fn is_direct(file: &IoFile) -> Result<(), Refusal> {
    let magic = file.file_system_magic();
    match file.direct_io_unit() {
        None => Err(Refusal::Unknown(magic)),
        Some(0) => Err(Refusal::Buffered(magic)),
        Some(unit) if unit > BLOCK => Err(Refusal::Alignment(unit)),
        Some(_) => Ok(()),
    }
}

/// Whether all data of a file is on its disk, and goes there as it is. May sleep.
fn is_plain(file: &IoFile) -> Result<(), Refusal> {
    if file.is_block_device() {
        return Ok(());
    }
    match file.file_system_magic() {
        // With inlinecrypt it is direct, but the block layer may do it by the CPU.
        magic if file.is_encrypted() => Err(Refusal::Buffered(magic)),
        EXT4 => Ok(()),
        XFS if file.may_be_realtime() => Err(Refusal::Realtime),
        XFS if file.has_stable_writes() => Err(Refusal::StableWrites),
        XFS => Ok(()),
        magic => Err(Refusal::FileSystem(magic)),
    }
}

/// Whether data can go between a file and a GPU by P2PDMA. May sleep.
pub(crate) fn check(gpu: &Gpu, file: &IoFile) -> Result<Route, Refusal> {
    if params::p2pdma() == P2pdma::Off {
        return Err(Refusal::Off);
    }
    let magic = file.file_system_magic();
    if !file.is_block_device() {
        if !file.is_regular() {
            return Err(Refusal::Kind);
        }
        if file.is_dax() {
            return Err(Refusal::Dax);
        }
    }
    let disk = Disk::of_file(file).ok_or(Refusal::NoDevice(magic))?;
    is_direct(file)?;
    is_plain(file)?;
    Ok(Route::new(Way::P2pdma, file, gpu.reaches(&disk)?))
}

/// The file for which a way was found last.
#[pin_data]
pub(crate) struct Approved {
    #[pin]
    last: Mutex<Option<Approval>>,
}

/// What tells a file on a disk from all others, and from itself when its data is copied.
#[derive(PartialEq, Eq)]
struct Key {
    disk: u64,
    inode: u64,
    device: (u32, u32),
    generation: u32,
    stable_writes: bool,
}

impl Key {
    fn of(file: &IoFile) -> Option<Self> {
        Some(Self {
            disk: block::sequence_of(file)?,
            inode: file.inode_number(),
            device: file.device_numbers(),
            generation: file.generation(),
            stable_writes: file.has_stable_writes(),
        })
    }
}

/// What the choice of a way depends on, at one moment.
pub(crate) struct Basis {
    key: Option<Key>,
    /// Of the storage drivers' hooks, and of the parameter.
    decided_by: u64,
    /// What the disks are made of.
    members: KVec<Membership>,
}

impl Basis {
    /// To be taken before the way is looked for, so that no change after that is missed. May sleep.
    pub(crate) fn of(vendors: &Vendors, file: &IoFile) -> Result<Self, Refusal> {
        Ok(Self {
            key: Key::of(file),
            decided_by: Self::decider(vendors),
            members: members_of(file)?,
        })
    }

    fn decider(vendors: &Vendors) -> u64 {
        u64::from(vendors.generation()) << 2 | params::p2pdma() as u64
    }

    /// Whether it is the same file, on the very same disk, and nothing has changed. May sleep.
    fn still_holds(&self, vendors: &Vendors, file: &IoFile) -> bool {
        self.key.is_some()
            && self.key == Key::of(file)
            && self.decided_by == Self::decider(vendors)
            && self.members.iter().all(Membership::is_same)
    }
}

struct Approval {
    basis: Basis,
    route: Route,
    drive: Option<Address>,
}

impl Approved {
    /// None yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            last <- new_mutex!(None),
        })
    }

    /// The way, if what it was found by still holds for this file. May sleep.
    pub(crate) fn covers(&self, vendors: &Vendors, file: &IoFile) -> Option<Route> {
        let last = self.last.lock();
        let last = last.as_ref()?;
        last.basis.still_holds(vendors, file).then_some(last.route)
    }

    /// The drive that the file is on, unless that is several, or may be. May sleep.
    pub(crate) fn drive(&self) -> Option<Address> {
        self.last.lock().as_ref()?.drive
    }

    /// A way was found for this file. May sleep.
    pub(crate) fn set(&self, file: &IoFile, basis: Basis, route: Route) {
        let drive = Disk::of_file(file).and_then(|disk| disk.pci_function());
        let approval = Approval {
            basis,
            route,
            drive: drive.map(|drive| drive.address()),
        };
        *self.last.lock() = Some(approval);
    }

    /// The next request is to be looked at anew. May sleep.
    pub(crate) fn forget(&self) {
        *self.last.lock() = None;
    }
}

/// What the disk of a file, and all disks that this is made of, are made of at this moment. May
/// sleep.
fn members_of(file: &IoFile) -> Result<KVec<Membership>, Refusal> {
    let mut memberships = KVec::new();
    let mut disks = KVec::new();
    if let Some(disk) = Disk::of_file(file) {
        disks.push(disk, GFP_KERNEL)?;
    }
    let mut next = 0;
    while let Some(disk) = disks.get(next).cloned() {
        next += 1;
        if disk.pci_function().is_some() {
            continue;
        }
        if let Some(membership) = disk.membership() {
            memberships.push(membership, GFP_KERNEL)?;
        }
        let members = disk.members().map_err(|_| Refusal::NoMemory)?;
        if members.len() + disks.len() > MAX_MEMBERS {
            break;
        }
        for member in members {
            disks.push(member, GFP_KERNEL)?;
        }
    }
    Ok(memberships)
}

/// The largest memory BAR that is prefetchable and takes 64-bit addresses, of one of NVIDIA's GPUs.
fn memory_bar(function: &Function) -> Option<Bar> {
    if !topology::is_gpu(function.vendor(), function.class()) {
        return None;
    }
    function
        .bars()
        .filter(|bar| bar.prefetchable && bar.wide)
        .max_by_key(|bar| bar.len)
}

/// NVIDIA's GPUs, each with that BAR. May sleep.
fn gpus() -> Result<KVec<Gpu>> {
    let mut gpus = KVec::new();
    pci::look(|bus| {
        bus.try_each(|function| {
            if let Some(bar) = memory_bar(function) {
                let function = Function::clone(function);
                gpus.push(Gpu { function, bar }, GFP_KERNEL)?;
            }
            Ok(())
        })
    })?;
    Ok(gpus)
}

/// Writes `/proc/driver/nvidia-fs/paths`. Changes nothing. May sleep.
///
/// A header line, then a line for each pair of GPU and disk, with blanks between: the GPU's
/// address, the disk's name, the way that data would take (`callback`, `p2pdma` or `none`), and for
/// `none` the first condition that fails, in words, else `-`. At the end, after a `#`, the storage
/// drivers whose hooks cannot be used, and why.
pub(crate) fn show_paths(vendors: &Vendors, m: &SeqFile) {
    seq_print!(m, "gpu          device       path     reason\n");
    let (Ok(disks), Ok(gpus)) = (block::disks(), gpus()) else {
        seq_print!(m, "# out of memory\n");
        return;
    };
    for gpu in gpus {
        for disk in &disks {
            let address = gpu.function.address();
            let name = disk.name();
            // The padding of a name that has its own way of being shown.
            let text = Padded(&name, 12);
            match would_work(vendors, &gpu, disk) {
                Ok(Way::Callback) => seq_print!(m, "{} {} callback -\n", address, text),
                Ok(Way::P2pdma) => seq_print!(m, "{} {} p2pdma   -\n", address, text),
                Err(why) => seq_print!(m, "{} {} none     {}\n", address, text, why),
            }
        }
    }
    vendors.show_failures(m);
}

/// A text with blanks up to a width.
struct Padded<'a>(&'a Name, usize);

impl fmt::Display for Padded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        for _ in self.0.len()..self.1 {
            f.write_str(" ")?;
        }
        Ok(())
    }
}

/// Whether a transfer between a GPU and a disk could be.
fn would_work(vendors: &Vendors, gpu: &Gpu, disk: &Disk) -> Result<Way, Refusal> {
    if params::p2pdma() != P2pdma::Only && !vendors.is_empty() && hooked(vendors, disk)?.is_some() {
        return Ok(Way::Callback);
    }
    if params::p2pdma() == P2pdma::Off {
        return Err(Refusal::Off);
    }
    p2pdma::can_use(&gpu.function, &gpu.bar)
        .map_err(|why| Refusal::Bar(gpu.function.address(), why))?;
    gpu.reaches(disk)?;
    Ok(Way::P2pdma)
}

/// Whether some NVMe drive can be reached from some GPU. May sleep.
pub(crate) fn nvme_available() -> bool {
    params::p2pdma() != P2pdma::Off
        && pci::look(|bus| {
            bus.find_map(|gpu| {
                let bar = memory_bar(gpu)?;
                p2pdma::can_use(gpu, &bar).ok()?;
                bus.find_map(|drive| {
                    (drive.class() == topology::NVME && gpu.distance_to(drive).is_some())
                        .then_some(())
                })
            })
            .is_some()
        })
}
