// SPDX-License-Identifier: GPL-2.0

//! Disks: which one a file is on, what they can do, what is below a stacked one.
//!
//! C headers: `include/linux/blkdev.h`, `include/linux/device/class.h`.

use crate::{
    bindings,
    file::IoFile,
    pci::{
        look,
        Function, //
    },
    symbol::ModuleName, //
};
use core::{
    mem::MaybeUninit,
    ptr::{
        null,
        null_mut,
        NonNull, //
    },
};
use kernel::{
    fmt,
    prelude::*, //
};

/// How deep below a PCI function its disks are looked for.
const MAX_NESTING: u32 = 6;

/// The name of a disk, as in `/sys/block`.
#[derive(Clone, Copy)]
pub struct Name([u8; 32]);

impl Name {
    fn text(&self) -> &str {
        let text = self.0.split(|&byte| byte == 0).next().unwrap_or(&[]);
        core::str::from_utf8(text).unwrap_or("?")
    }

    /// Bytes of the name.
    pub fn len(&self) -> usize {
        self.text().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A counted reference on the module that has a disk's functions: the last put of a disk calls them.
///
/// # Invariants
///
/// One reference on the module is owned; null is the kernel itself.
struct Driver(*mut bindings::module);

// SAFETY: The count is atomic, and belongs to no thread.
unsafe impl Send for Driver {}
// SAFETY: As above; all else of the module is left alone.
unsafe impl Sync for Driver {}

impl Driver {
    /// That of an open disk.
    ///
    /// # Safety
    ///
    /// Somebody has the disk open during the call.
    unsafe fn of_open(disk: NonNull<bindings::gendisk>) -> Option<Self> {
        let mut driver = null_mut();
        // SAFETY: Who opens a disk holds its driver.
        let held = unsafe { bindings::nvfs_helper_disk_hold_open(disk.as_ptr(), &mut driver) };
        // INVARIANT: Just taken.
        held.then_some(Self(driver))
    }

    /// That of a live disk. Callable in any context.
    ///
    /// # Safety
    ///
    /// The disk is referenced during the call.
    unsafe fn of_live(disk: NonNull<bindings::gendisk>) -> Option<Self> {
        let mut driver = null_mut();
        // SAFETY: By the safety requirements.
        let held = unsafe { bindings::nvfs_helper_disk_hold_live(disk.as_ptr(), &mut driver) };
        // INVARIANT: Just taken.
        held.then_some(Self(driver))
    }
}

impl Clone for Driver {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_module_get(self.0) };
        // INVARIANT: Just taken.
        Self(self.0)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_module_put(self.0) }
    }
}

/// A counted reference on a whole disk. Its driver's module stays meanwhile, even if the disk is
/// removed.
///
/// # Invariants
///
/// One reference on the disk's device is owned, which goes before `driver`.
pub struct Disk {
    disk: NonNull<bindings::gendisk>,
    driver: Driver,
}

// SAFETY: The count is atomic, and belongs to no thread.
unsafe impl Send for Disk {}
// SAFETY: What is read does not change, or is a racy hint.
unsafe impl Sync for Disk {}

/// The block device that a file's data is on, which stays open while the file is. A file system that
/// opens its devices itself (btrfs) has none: it can exchange `s_bdev` at any time, and close it.
///
/// Follows `setup_bdev_super` and `kill_block_super` in `fs/super.c`.
#[inline]
fn device_of(file: &IoFile) -> Option<NonNull<bindings::block_device>> {
    let bdev = if file.is_block_device() {
        // SAFETY: The host of an open block special file is a block device's inode.
        unsafe { bindings::I_BDEV(file.host()) }
    } else {
        // SAFETY: The inode of an open file is live.
        let sb = unsafe { (*file.inode()).i_sb };
        // SAFETY: So is its superblock; the field does not change while it is mounted.
        if unsafe { (*sb).s_bdev_file }.is_null() {
            return None;
        }
        // SAFETY: As above; the device is that of this file, which is open until the superblock goes.
        unsafe { (*sb).s_bdev }
    };
    NonNull::new(bdev)
}

/// A number that no other disk ever had, of the disk that a file is on. Takes no reference.
#[inline]
pub fn sequence_of(file: &IoFile) -> Option<u64> {
    let bdev = device_of(file)?;
    // SAFETY: `device_of` gives an open device, which keeps its disk.
    Some(unsafe { (*(*bdev.as_ptr()).bd_disk).diskseq })
}

impl Disk {
    /// # Safety
    ///
    /// The disk is referenced during the call, and `driver` is its driver.
    unsafe fn hold(disk: NonNull<bindings::gendisk>, driver: Driver) -> Self {
        // SAFETY: By the safety requirements.
        let device = unsafe { bindings::nvfs_helper_disk_to_dev(disk.as_ptr()) };
        // SAFETY: As above.
        unsafe { bindings::get_device(device) };
        // INVARIANT: Just taken.
        Self { disk, driver }
    }

    /// The disk that a file's data is on: of a block special file its own, else the file system's.
    /// `None` for a file system without a block device, or with several.
    pub fn of_file(file: &IoFile) -> Option<Self> {
        // SAFETY: `device_of` gives an open device, which keeps its disk.
        let disk = NonNull::new(unsafe { (*device_of(file)?.as_ptr()).bd_disk })?;
        // SAFETY: As above, it is open.
        let driver = unsafe { Driver::of_open(disk) }?;
        // SAFETY: As above.
        Some(unsafe { Self::hold(disk, driver) })
    }

    fn device(&self) -> *mut bindings::device {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_disk_to_dev(self.disk.as_ptr()) }
    }

    /// Its name.
    pub fn name(&self) -> Name {
        // SAFETY: By the type invariant; the name does not change.
        Name(unsafe { (*self.disk.as_ptr()).disk_name })
    }

    /// Whether its driver takes requests with peer-to-peer pages.
    pub fn takes_p2pdma(&self) -> bool {
        // SAFETY: By the type invariant; a disk keeps its queue.
        unsafe { bindings::nvfs_helper_disk_takes_p2pdma(self.disk.as_ptr()) }
    }

    /// Whether it has an I/O scheduler, now.
    pub fn has_scheduler(&self) -> bool {
        // SAFETY: By the type invariant; a disk keeps its queue.
        unsafe { bindings::nvfs_helper_disk_has_scheduler(self.disk.as_ptr()) }
    }

    /// Whether it hands the pages of requests on to its members as they are, and neither reads nor
    /// changes what is in them: NVMe multipath disks, and md of the levels without parity. What
    /// cannot be seen from outside is raid1 with write-behind, which copies. May sleep.
    pub fn passes_pages_through(&self) -> bool {
        self.lock().is_some_and(|live| {
            live.is_multipath()
                // SAFETY: By the type invariant; a disk keeps its queue.
                || unsafe { bindings::nvfs_helper_disk_is_md_without_parity(self.disk.as_ptr()) }
        })
    }

    /// The module that its requests go to, which need not be the one that the disk keeps; none if
    /// that is in the kernel itself, or the disk was removed. May sleep.
    pub fn module(&self) -> ModuleName {
        let entry = self.lock().map_or(null(), |live| {
            // SAFETY: A live disk has its driver, and cannot be removed while it is locked.
            unsafe { bindings::nvfs_helper_disk_entry(live.0.disk.as_ptr()) }
        });
        ModuleName::of_function(entry)
    }

    /// Whether its name begins with that of a driver.
    pub fn is_named_after(&self, driver: &str) -> bool {
        self.name().text().starts_with(driver)
    }

    /// Whether it is hidden: a path of a multipath disk.
    pub fn is_hidden(&self) -> bool {
        // SAFETY: By the type invariant; the flag does not change.
        let flags = unsafe { (*self.disk.as_ptr()).flags };
        // CAST: A flag of a signed field.
        flags & bindings::GENHD_FL_HIDDEN as c_int != 0
    }

    /// Whether it has no data: an unused loop device, a drive without medium.
    pub fn is_empty(&self) -> bool {
        // SAFETY: By the type invariant; part 0 is the whole disk.
        let sectors =
            unsafe { (&raw const (*(*self.disk.as_ptr()).part0).bd_nr_sectors).read_volatile() };
        sectors == 0
    }

    /// Keeps the disk from being removed, unless it is being removed already. May sleep.
    fn lock(&self) -> Option<LiveDisk<'_>> {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_disk_lock(self.disk.as_ptr()) };
        // INVARIANT: Locked just now; if the disk is not live, it is unlocked again at once.
        let locked = LiveDisk(self);
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_disk_is_live(self.disk.as_ptr()) }.then_some(locked)
    }

    /// The PCI function that it hangs on, if any. May sleep.
    pub fn pci_function(&self) -> Option<Function> {
        let live = self.lock()?;
        // SAFETY: A live disk is registered, so it holds its parent, and that its own.
        unsafe { Function::of_device((*live.0.device()).parent) }
    }

    /// The disks that this one is made of: those below a stacked one, or the paths of an NVMe
    /// multipath disk; none for all others. May sleep.
    pub fn members(&self) -> Result<KVec<Disk>> {
        let mut members = KVec::new();
        let Some(live) = self.lock() else {
            return Ok(members);
        };
        let multipath = live.is_multipath();
        let folder = live.members_folder();
        drop(live);
        // SAFETY: By the type invariant the device is live, and so is its class.
        let class = unsafe { (*self.device()).class };
        for (part, disk) in Devices::new(class) {
            let is_member = if multipath {
                disk.is_hidden() && is_path_of(disk.name().text(), self.name().text())
            } else {
                folder.as_ref().is_some_and(|folder| folder.has(&part))
            };
            if is_member && disk.disk != self.disk {
                members.push(disk, GFP_KERNEL)?;
            }
        }
        Ok(members)
    }
}

impl Disk {
    /// What it is made of at this moment. `None` for a disk that is not made of others. May sleep.
    pub fn membership(&self) -> Option<Membership> {
        let live = self.lock()?;
        let folder = live.members_folder()?;
        // SAFETY: The folder of a live disk is in sysfs.
        let node = NonNull::new(unsafe { (*folder.0.as_ptr()).sd })?;
        // SAFETY: As above.
        unsafe { bindings::kernfs_get(node.as_ptr()) };
        // INVARIANT: Just taken.
        let node = Node(node);
        // SAFETY: By the type invariant; a disk keeps its queue.
        let queue = NonNull::new(unsafe { (*self.disk.as_ptr()).queue })?;
        // SAFETY: As above.
        if !unsafe { bindings::blk_get_queue(queue.as_ptr()) } {
            return None;
        }
        drop(live);
        // INVARIANT: Just taken.
        let queue = Queue(queue);
        Some(Membership {
            revision: node.revision(),
            features: queue.features(),
            node,
            queue,
        })
    }
}

/// The members of a stacked disk at some moment, and what it did with pages then: the level of md
/// can be changed while it is used.
pub struct Membership {
    node: Node,
    revision: c_ulong,
    queue: Queue,
    features: u32,
}

impl Membership {
    /// Whether none came or went since then, and the disk is of the same kind. Callable in any
    /// context.
    #[inline]
    pub fn is_same(&self) -> bool {
        self.node.revision() == self.revision && self.queue.features() == self.features
    }
}

/// A counted reference on a folder in sysfs, which may be taken out of it.
///
/// # Invariants
///
/// One reference on the node is owned.
struct Node(NonNull<bindings::kernfs_node>);

// SAFETY: A reference belongs to no thread.
unsafe impl Send for Node {}
// SAFETY: The node is only read, one word of it.
unsafe impl Sync for Node {}

impl Node {
    #[inline]
    fn revision(&self) -> c_ulong {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_kernfs_revision(self.0.as_ptr()) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::kernfs_put(self.0.as_ptr()) }
    }
}

/// A counted reference on the queue of a disk. Unlike one on the disk it is no reason for the
/// disk's driver to stay.
///
/// # Invariants
///
/// One reference on the queue is owned.
struct Queue(NonNull<bindings::request_queue>);

// SAFETY: A reference belongs to no thread.
unsafe impl Send for Queue {}
// SAFETY: The queue is only read, one word of it.
unsafe impl Sync for Queue {}

impl Queue {
    /// The bits that say what the disk can do and wants.
    #[inline]
    fn features(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_queue_features(self.0.as_ptr()) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::blk_put_queue(self.0.as_ptr()) }
    }
}

/// Whether a hidden disk, such as `nvme3c1n2`, is a path of the NVMe multipath disk `nvme3n2`.
fn is_path_of(path: &str, whole: &str) -> bool {
    let split = || {
        let (subsystem, namespace) = whole.strip_prefix("nvme")?.split_once('n')?;
        let (controller, path_namespace) = path
            .strip_prefix("nvme")?
            .strip_prefix(subsystem)?
            .strip_prefix('c')?
            .split_once('n')?;
        let digits = !controller.is_empty() && controller.bytes().all(|b| b.is_ascii_digit());
        Some(digits && path_namespace == namespace)
    };
    split().unwrap_or(false)
}

/// Whether a class has this name.
///
/// # Safety
///
/// `class` is NULL, or registered during the call.
unsafe fn is_class(class: *const bindings::class, name: &CStr) -> bool {
    if class.is_null() {
        return false;
    }
    // SAFETY: A registered class has a name.
    let found = unsafe { CStr::from_char_ptr((*class).name) };
    found.to_bytes() == name.to_bytes()
}

/// A disk that is registered and stays so: `del_gendisk` marks it dead under the lock before it
/// takes anything away from it.
///
/// # Invariants
///
/// `open_mutex` of the disk is held by the current task.
struct LiveDisk<'a>(&'a Disk);

impl LiveDisk<'_> {
    /// Whether it is the head of an NVMe multipath disk, whose parent is a subsystem.
    fn is_multipath(&self) -> bool {
        // SAFETY: A registered device holds its parent.
        let parent = unsafe { (*self.0.device()).parent };
        // SAFETY: As above; a device holds its class.
        !parent.is_null() && unsafe { is_class((*parent).class, c"nvme-subsystem") }
    }

    /// Its folder `slaves` in sysfs.
    fn members_folder(&self) -> Option<Folder> {
        // SAFETY: By the type invariant, nobody takes the folder away now.
        let folder = NonNull::new(unsafe { (*self.0.disk.as_ptr()).slave_dir })?;
        // SAFETY: As above.
        unsafe { bindings::kobject_get(folder.as_ptr()) };
        // INVARIANT: Just taken.
        Some(Folder(folder))
    }
}

impl Drop for LiveDisk<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_disk_unlock(self.0.disk.as_ptr()) }
    }
}

/// A counted reference on a folder in sysfs.
///
/// # Invariants
///
/// One reference on the kobject is owned.
struct Folder(NonNull<bindings::kobject>);

impl Folder {
    /// Whether it has an entry that is named like a disk or partition.
    fn has(&self, part: &Part) -> bool {
        // SAFETY: By the type invariants of both. A kobject holds its node until it is released, and
        // a node that was taken out of sysfs is empty.
        let entry = unsafe {
            bindings::kernfs_find_and_get_ns(
                (*self.0.as_ptr()).sd,
                bindings::nvfs_helper_dev_name(&raw const (*part.0.as_ptr()).bd_device),
                null(),
            )
        };
        // SAFETY: NULL, or a reference of ours.
        unsafe { bindings::kernfs_put(entry) };
        !entry.is_null()
    }
}

impl Drop for Folder {
    /// May sleep.
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::kobject_put(self.0.as_ptr()) }
    }
}

impl Clone for Disk {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::get_device(self.device()) };
        // INVARIANT: Just taken.
        Self {
            disk: self.disk,
            driver: self.driver.clone(),
        }
    }
}

impl Drop for Disk {
    /// May sleep.
    fn drop(&mut self) {
        // SAFETY: By the type invariant. `driver` goes after this.
        unsafe { bindings::put_device(self.device()) }
    }
}

/// A counted reference on a disk or a partition.
///
/// # Invariants
///
/// One reference on its device is owned.
struct Part(NonNull<bindings::block_device>);

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::put_device(&raw mut (*self.0.as_ptr()).bd_device) }
    }
}

/// All disks and partitions.
///
/// # Invariants
///
/// `iter` is initialized over the class of block devices. `driver` is that of the device that it is
/// at, if that was given out.
struct Devices {
    iter: bindings::class_dev_iter,
    driver: Option<Driver>,
}

impl Devices {
    fn new(class: *const bindings::class) -> Self {
        let mut iter = MaybeUninit::uninit();
        // SAFETY: The class is registered; no type means all.
        unsafe { bindings::class_dev_iter_init(iter.as_mut_ptr(), class, null(), null()) };
        // INVARIANT: Initialized just now.
        Self {
            // SAFETY: As above. The iterator has no pointer into itself.
            iter: unsafe { iter.assume_init() },
            driver: None,
        }
    }
}

/// The parts are to be dropped before the next step. Disks that are not live are left out.
impl Iterator for Devices {
    type Item = (Part, Disk);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // SAFETY: By the type invariant.
            let device = NonNull::new(unsafe { bindings::class_dev_iter_next(&mut self.iter) })?;
            // SAFETY: The iterator holds the device until the next step; all of this class are
            // block devices.
            let bdev = unsafe { bindings::nvfs_helper_dev_to_bdev(device.as_ptr()) };
            let bdev = NonNull::new(bdev)?;
            // SAFETY: As above; a device has a disk, which lives as long.
            let disk = NonNull::new(unsafe { (*bdev.as_ptr()).bd_disk })?;
            // SAFETY: As above.
            let Some(driver) = (unsafe { Driver::of_live(disk) }) else {
                continue;
            };
            // INVARIANT: The last one goes only now that the iterator is past its device.
            self.driver = Some(driver.clone());
            // SAFETY: As above.
            unsafe { bindings::get_device(device.as_ptr()) };
            // INVARIANT: Just taken.
            let part = Part(bdev);
            // SAFETY: As above.
            return Some((part, unsafe { Disk::hold(disk, driver) }));
        }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::class_dev_iter_exit(&mut self.iter) }
    }
}

/// All whole disks that are visible and not empty, by name. May sleep.
///
/// The class of block devices is not exported; it is found at a disk of a PCI function. Without one
/// there is no disk for us.
pub fn disks() -> Result<KVec<Disk>> {
    let mut disks = KVec::new();
    let Some(class) = block_class() else {
        return Ok(disks);
    };
    for (part, disk) in Devices::new(class.as_ptr()) {
        // SAFETY: The part is held.
        let partition = unsafe { bindings::nvfs_helper_bdev_is_partition(part.0.as_ptr()) };
        if !partition && !disk.is_hidden() && !disk.is_empty() {
            disks.push(disk, GFP_KERNEL)?;
        }
    }
    disks.sort_unstable_by(|a: &Disk, b: &Disk| a.name().text().cmp(b.name().text()));
    Ok(disks)
}

/// The class of block devices, which lives for ever.
fn block_class() -> Option<NonNull<bindings::class>> {
    const STORAGE: u32 = 0x01;
    look(|bus| {
        bus.find_map(|function| {
            if function.class() >> 16 != STORAGE {
                return None;
            }
            let mut search = Search {
                found: None,
                depth: MAX_NESTING,
            };
            search.below(function.device());
            search.found
        })
    })
}

struct Search {
    found: Option<NonNull<bindings::class>>,
    depth: u32,
}

impl Search {
    fn below(&mut self, device: *mut bindings::device) {
        let Some(depth) = self.depth.checked_sub(1) else {
            return;
        };
        self.depth = depth;
        // SAFETY: The caller has a live device; the callback gets this search back.
        unsafe {
            bindings::device_for_each_child(device, core::ptr::from_mut(self).cast(), Some(look_at))
        };
        self.depth += 1;
    }
}

/// # Safety
///
/// Only for [`Search::below`].
unsafe extern "C" fn look_at(device: *mut bindings::device, search: *mut c_void) -> c_int {
    // SAFETY: `below` lends its search to this call.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: The driver core holds the device during the call.
    let class = unsafe { (*device).class };
    // SAFETY: The class of a registered device is registered.
    if unsafe { is_class(class, c"block") } {
        search.found = NonNull::new(class.cast_mut());
        return 1;
    }
    search.below(device);
    c_int::from(search.found.is_some())
}
