// SPDX-License-Identifier: GPL-2.0

//! Disks: which one a file is on, what they can do, what is below a stacked one.
//!
//! C headers: `include/linux/blkdev.h`, `include/linux/device/class.h`.

use crate::{
    bindings,
    file::IoFile,
    pci::{
        functions,
        Function, //
    },
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

/// How deep disks may be stacked.
const MAX_DEPTH: u32 = 8;

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

/// A counted reference on a whole disk.
///
/// # Invariants
///
/// One reference on the disk's device is owned.
pub struct Disk(NonNull<bindings::gendisk>);

// SAFETY: The count is atomic, and belongs to no thread.
unsafe impl Send for Disk {}
// SAFETY: What is read does not change, or is a racy hint.
unsafe impl Sync for Disk {}

/// The block device that a file's data is on.
fn device_of(file: &IoFile) -> Option<NonNull<bindings::block_device>> {
    let bdev = if file.is_block_device() {
        // SAFETY: The host of an open block special file is a block device's inode.
        unsafe { bindings::I_BDEV(file.host()) }
    } else {
        // SAFETY: The inode of an open file is live, and so is its superblock.
        unsafe { (*(*file.inode()).i_sb).s_bdev }
    };
    NonNull::new(bdev)
}

/// A number that no other disk ever had, of the disk that a file is on. Takes no reference.
pub fn sequence_of(file: &IoFile) -> Option<u64> {
    let bdev = device_of(file)?;
    // SAFETY: The open file keeps its device, and the device its disk.
    Some(unsafe { (*(*bdev.as_ptr()).bd_disk).diskseq })
}

impl Disk {
    /// # Safety
    ///
    /// `bdev` is valid during the call.
    unsafe fn hold(bdev: NonNull<bindings::block_device>) -> Option<Self> {
        // SAFETY: By the safety requirements; a device has a disk.
        let disk = NonNull::new(unsafe { (*bdev.as_ptr()).bd_disk })?;
        // SAFETY: The disk lives as long as its devices.
        let device = unsafe { bindings::nvfs_helper_disk_to_dev(disk.as_ptr()) };
        // SAFETY: As above.
        unsafe { bindings::get_device(device) };
        // INVARIANT: Just taken.
        Some(Self(disk))
    }

    /// The disk that a file's data is on: of a block special file its own, else the file system's.
    /// `None` for a file system without a block device, or with several.
    pub fn of_file(file: &IoFile) -> Option<Self> {
        // SAFETY: The open file keeps its device.
        unsafe { Self::hold(device_of(file)?) }
    }

    fn device(&self) -> *mut bindings::device {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_disk_to_dev(self.0.as_ptr()) }
    }

    /// Its name.
    pub fn name(&self) -> Name {
        // SAFETY: By the type invariant; the name does not change.
        Name(unsafe { (*self.0.as_ptr()).disk_name })
    }

    /// Whether its driver takes requests with peer-to-peer pages.
    pub fn takes_p2pdma(&self) -> bool {
        // SAFETY: By the type invariant; a disk keeps its queue.
        unsafe { bindings::nvfs_helper_disk_takes_p2pdma(self.0.as_ptr()) }
    }

    /// Whether it is hidden: a path of a multipath disk.
    pub fn is_hidden(&self) -> bool {
        // SAFETY: By the type invariant; the flag does not change.
        let flags = unsafe { (*self.0.as_ptr()).flags };
        // CAST: A flag of a signed field.
        flags & bindings::GENHD_FL_HIDDEN as c_int != 0
    }

    /// Whether it has no data: an unused loop device, a drive without medium.
    pub fn is_empty(&self) -> bool {
        // SAFETY: By the type invariant; part 0 is the whole disk.
        let sectors =
            unsafe { (&raw const (*(*self.0.as_ptr()).part0).bd_nr_sectors).read_volatile() };
        sectors == 0
    }

    /// The PCI function that it hangs on, if any.
    pub fn pci_function(&self) -> Option<Function> {
        // SAFETY: By the type invariant; a device keeps its parents.
        unsafe { Function::of_device(self.device()) }
    }

    /// Whether `self`, or a partition of it, is a part of `holder`. May sleep.
    fn is_part_of(&self, part: NonNull<bindings::block_device>, holder: &Disk) -> bool {
        let disk = self.0.as_ptr();
        // SAFETY: By the type invariant. The lock keeps the holders' folder, see `del_gendisk`.
        unsafe { bindings::nvfs_helper_disk_lock(disk) };
        // SAFETY: By the type invariant.
        let live = unsafe { bindings::nvfs_helper_disk_is_live(disk) };
        // SAFETY: The caller holds the device of the part.
        let folder = unsafe { (*part.as_ptr()).bd_holder_dir };
        let mut found = null_mut();
        if live && !folder.is_null() {
            // SAFETY: The folder of a live disk is there, by the lock; so is the holder's name.
            found = unsafe {
                bindings::kernfs_find_and_get_ns(
                    (*folder).sd,
                    (&raw const (*holder.0.as_ptr()).disk_name).cast(),
                    null(),
                )
            };
        }
        // SAFETY: Locked above.
        unsafe { bindings::nvfs_helper_disk_unlock(disk) };
        // SAFETY: NULL, or a reference of ours.
        unsafe { bindings::kernfs_put(found) };
        !found.is_null()
    }

    /// Calls `f` for each disk that this one is made of, and that is itself made of none; for
    /// `self` if it is not stacked. Stops at the first error. May sleep.
    pub fn each_member<E>(&self, f: &mut dyn FnMut(&Disk) -> Result<(), E>) -> Result<(), E> {
        self.descend(MAX_DEPTH, f)
    }

    fn descend<E>(&self, depth: u32, f: &mut dyn FnMut(&Disk) -> Result<(), E>) -> Result<(), E> {
        let Some(below) = depth
            .checked_sub(1)
            .filter(|_| self.pci_function().is_none())
        else {
            return f(self);
        };
        let mut stacked = false;
        // SAFETY: By the type invariant the device is live, and so is its class.
        let class = unsafe { (*self.device()).class };
        for (part, disk) in Devices::new(class) {
            if disk.0 != self.0 && disk.is_part_of(part.0, self) {
                stacked = true;
                disk.descend(below, f)?;
            }
        }
        if stacked {
            Ok(())
        } else {
            f(self)
        }
    }
}

impl Drop for Disk {
    /// May sleep.
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
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
/// `iter` is initialized over the class of block devices.
struct Devices {
    iter: bindings::class_dev_iter,
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
        }
    }
}

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
            // SAFETY: As above.
            unsafe { bindings::get_device(device.as_ptr()) };
            // INVARIANT: Just taken.
            let part = Part(bdev);
            // SAFETY: Held.
            if let Some(disk) = unsafe { Disk::hold(bdev) } {
                return Some((part, disk));
            }
        }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::class_dev_iter_exit(&mut self.iter) }
    }
}

/// Calls `f` for each whole disk that is visible and not empty. May sleep.
///
/// The class of block devices is not exported; it is found at a disk of a PCI function. Without one
/// there is no disk for us.
pub fn each_disk(mut f: impl FnMut(&Disk)) {
    let Some(class) = block_class() else {
        return;
    };
    for (part, disk) in Devices::new(class.as_ptr()) {
        // SAFETY: The part is held.
        let partition = unsafe { bindings::nvfs_helper_bdev_is_partition(part.0.as_ptr()) };
        if !partition && !disk.is_hidden() && !disk.is_empty() {
            f(&disk);
        }
    }
}

/// The class of block devices, which lives for ever.
fn block_class() -> Option<NonNull<bindings::class>> {
    const STORAGE: u32 = 0x01;
    functions()
        .filter(|function| function.class() >> 16 == STORAGE)
        .find_map(|function| {
            let mut search = Search {
                found: None,
                depth: MAX_NESTING,
            };
            search.below(function.device());
            search.found
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
    if let Some(class) = NonNull::new(class.cast_mut()) {
        // SAFETY: A registered class has a name.
        let name = unsafe { CStr::from_char_ptr((*class.as_ptr()).name) };
        if name.to_bytes() == b"block" {
            search.found = Some(class);
            return 1;
        }
    }
    search.below(device);
    c_int::from(search.found.is_some())
}
