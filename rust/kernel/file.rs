// SPDX-License-Identifier: GPL-2.0

//! An open file of the calling process that direct I/O is to be done on.
//!
//! C headers: `include/linux/file.h`, `include/linux/fs.h`.

use crate::bindings;
use core::{
    mem::MaybeUninit,
    ptr::{
        null,
        NonNull, //
    },
};
use kernel::{
    error::to_result,
    prelude::*,
    types::NotThreadSafe, //
};

/// A counted reference on an open file: it stays open for as long as this lives, whatever the
/// process does with its descriptor.
///
/// # Invariants
///
/// One reference on the file is owned.
pub struct IoFile(NonNull<bindings::file>);

// SAFETY: `struct file` is made to be shared; we never use its position.
unsafe impl Send for IoFile {}
// SAFETY: As above.
unsafe impl Sync for IoFile {}

/// How a file was opened.
#[derive(Clone, Copy)]
pub struct Access {
    /// Opened for reading.
    pub read: bool,
    /// Opened for writing.
    pub write: bool,
    /// The file can be read at all.
    pub can_read: bool,
    /// The file can be written at all.
    pub can_write: bool,
}

impl IoFile {
    /// The file behind a descriptor of the current process; `None` also for one opened with
    /// `O_PATH`.
    #[inline]
    pub fn get(fd: i32) -> Option<Self> {
        let fd = u32::try_from(fd).ok()?;
        // SAFETY: Only looks the descriptor up and takes a reference.
        let file = unsafe { bindings::fget(fd) };
        // INVARIANT: `fget` gave the reference.
        NonNull::new(file).map(Self)
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut bindings::file {
        self.0.as_ptr()
    }

    /// The inode that the descriptor refers to: of a block special file, the node's.
    #[inline]
    pub(crate) fn inode(&self) -> *mut bindings::inode {
        // SAFETY: The file is open; the field does not change.
        unsafe { (*self.as_ptr()).f_inode }
    }

    /// Where the page cache is: of a block special file, the device's.
    #[inline]
    fn mapping(&self) -> *mut bindings::address_space {
        // SAFETY: The file is open; the field does not change.
        unsafe { (*self.as_ptr()).f_mapping }
    }

    /// The inode that has the data and the size.
    #[inline]
    pub(crate) fn host(&self) -> *mut bindings::inode {
        // SAFETY: The mapping of an open file is live, and so is its host.
        unsafe { (*self.mapping()).host }
    }

    /// The table of operations of the file.
    #[inline]
    fn operations(&self) -> &bindings::file_operations {
        // SAFETY: An open file has a table, which is never written.
        unsafe { &*(*self.as_ptr()).f_op }
    }

    /// Whether the file was opened with `O_DIRECT`, or has it by now.
    #[inline]
    pub fn is_direct(&self) -> bool {
        // SAFETY: The file is open; `fcntl` may change the flags at any time.
        let flags = unsafe { (&raw const (*self.as_ptr()).f_flags).read_volatile() };
        flags & bindings::O_DIRECT != 0
    }

    /// How the file was opened.
    #[inline]
    pub fn access(&self) -> Access {
        // SAFETY: The file is open; these bits do not change.
        let mode = unsafe { (*self.as_ptr()).f_mode };
        Access {
            read: mode & bindings::nvfs_fmode_NVFS_FMODE_READ != 0,
            write: mode & bindings::nvfs_fmode_NVFS_FMODE_WRITE != 0,
            can_read: mode & bindings::nvfs_fmode_NVFS_FMODE_CAN_READ != 0,
            can_write: mode & bindings::nvfs_fmode_NVFS_FMODE_CAN_WRITE != 0,
        }
    }

    /// Whether the process could open it for reading now, by `/proc/self/fd`: a regular file or a
    /// block device is opened, and watched as any open is. May sleep.
    pub fn may_be_read(&self) -> bool {
        // SAFETY: The file is open; the current task has credentials.
        unsafe { bindings::nvfs_helper_file_may_be_read(self.as_ptr()) }
    }

    /// The inode number that `fstat` tells.
    #[inline]
    pub fn inode_number(&self) -> u64 {
        // SAFETY: The inode of an open file is live; the number does not change.
        unsafe { (*self.inode()).i_ino }
    }

    /// The inode's generation.
    #[inline]
    pub fn generation(&self) -> u32 {
        // SAFETY: The inode of an open file is live; a racing change gives either value.
        unsafe { (&raw const (*self.inode()).i_generation).read_volatile() }
    }

    /// The type bits of the inode's mode.
    #[inline]
    fn kind(&self) -> u32 {
        // SAFETY: The inode of an open file is live; these bits do not change.
        let mode = unsafe { (&raw const (*self.inode()).i_mode).read_volatile() };
        u32::from(mode) & bindings::S_IFMT
    }

    /// Whether it is a block special file.
    #[inline]
    pub fn is_block_device(&self) -> bool {
        self.kind() == bindings::S_IFBLK
    }

    /// Whether it is a regular file.
    #[inline]
    pub fn is_regular(&self) -> bool {
        self.kind() == bindings::S_IFREG
    }

    /// Major and minor of the device that a block special file stands for, else of the file
    /// system's superblock.
    #[inline]
    pub fn device_numbers(&self) -> (u32, u32) {
        let inode = self.inode();
        let dev = if self.is_block_device() {
            // SAFETY: The inode of an open file is live; the number does not change.
            unsafe { (*inode).i_rdev }
        } else {
            // SAFETY: As above, and so is its superblock.
            unsafe { (*(*inode).i_sb).s_dev }
        };
        (
            dev >> bindings::MINORBITS,
            dev & ((1 << bindings::MINORBITS) - 1),
        )
    }

    /// Magic number of the file system.
    #[inline]
    pub fn file_system_magic(&self) -> u64 {
        // SAFETY: The inode of an open file is live, and so is its superblock.
        let magic = unsafe { (*(*self.inode()).i_sb).s_magic };
        // CAST: 32 or 64 bits, by architecture.
        magic as u64
    }

    /// Bytes of data, now.
    #[inline]
    pub fn size(&self) -> u64 {
        // SAFETY: The mapping's host of an open file is live.
        let size = unsafe { bindings::nvfs_helper_i_size_read(self.host()) };
        u64::try_from(size).unwrap_or(0)
    }

    /// Whether the file has fewer blocks than its size takes. A hint.
    pub fn looks_sparse(&self) -> bool {
        // SAFETY: The inode of an open file is live.
        let blocks = unsafe { (&raw const (*self.inode()).i_blocks).read_volatile() };
        blocks.saturating_mul(512) < self.size()
    }

    /// The unit in which the file system (or device) reads and writes, in bytes; a power of two.
    #[inline]
    pub fn block_size(&self) -> u64 {
        // SAFETY: The mapping's host of an open file is live.
        let bits = unsafe { (&raw const (*self.host()).i_blkbits).read_volatile() };
        1u64.checked_shl(u32::from(bits)).unwrap_or(1)
    }

    /// Whether the data is memory that the file system maps directly.
    pub fn is_dax(&self) -> bool {
        // SAFETY: The mapping's host of an open file is live.
        unsafe { bindings::nvfs_helper_is_dax(self.host()) }
    }

    /// Whether the file system or the block layer encrypts the data.
    pub fn is_encrypted(&self) -> bool {
        // SAFETY: The mapping's host of an open file is live.
        unsafe { bindings::nvfs_helper_is_encrypted(self.host()) }
    }

    /// Whether data must not change while it is written: XFS then copies that of direct I/O. It is
    /// decided when the file system is mounted, or the inode is made a realtime one.
    #[inline]
    pub fn has_stable_writes(&self) -> bool {
        // SAFETY: The mapping of an open file is live.
        unsafe { bindings::nvfs_helper_mapping_stable_writes(self.mapping()) }
    }

    /// What the offset and the length of direct I/O must be multiples of, in bytes; 0 when this
    /// file is always buffered, `None` when the file system does not say. May sleep.
    ///
    /// Of a block device it is the logical block size, which the device itself checks.
    pub fn direct_io_unit(&self) -> Option<u32> {
        if self.is_block_device() {
            return Some(1);
        }
        let mut stat = MaybeUninit::<bindings::kstat>::zeroed();
        // SAFETY: The file is open; `stat` is memory for the answer.
        let error = unsafe {
            bindings::nvfs_helper_file_getattr(
                self.as_ptr(),
                stat.as_mut_ptr(),
                bindings::STATX_DIOALIGN,
            )
        };
        // SAFETY: Zeroes are a valid value.
        let stat = unsafe { stat.assume_init() };
        let known = error == 0 && stat.result_mask & bindings::STATX_DIOALIGN != 0;
        known.then_some(match stat.dio_mem_align {
            0 => 0,
            align => stat.dio_offset_align.max(align),
        })
    }

    /// Whether XFS may keep the data on its realtime device: also if it does not say. May sleep.
    ///
    /// It can change while the file has no blocks.
    pub fn may_be_realtime(&self) -> bool {
        let mut flags = 0;
        // SAFETY: The file is open; `flags` is memory for the answer.
        let error = unsafe { bindings::nvfs_helper_file_xflags(self.as_ptr(), &mut flags) };
        error != 0 || flags & bindings::FS_XFLAG_REALTIME != 0
    }

    /// Whether the file system can allocate space ahead of a write.
    pub fn has_fallocate(&self) -> bool {
        self.operations().fallocate.is_some()
    }

    /// Whether the file can be read and written by iterators, as direct I/O needs.
    #[inline]
    pub fn has_iterators(&self) -> bool {
        let ops = self.operations();
        ops.read_iter.is_some() && ops.write_iter.is_some()
    }

    #[inline]
    pub(crate) fn read_iter(
        &self,
    ) -> Option<unsafe extern "C" fn(*mut bindings::kiocb, *mut bindings::iov_iter) -> isize> {
        self.operations().read_iter
    }

    #[inline]
    pub(crate) fn write_iter(
        &self,
    ) -> Option<unsafe extern "C" fn(*mut bindings::kiocb, *mut bindings::iov_iter) -> isize> {
        self.operations().write_iter
    }

    /// Whether the page cache holds anything in the bytes `first..=last` of the file.
    #[inline]
    pub fn is_cached(&self, first: i64, last: i64) -> bool {
        // SAFETY: The mapping of an open file is live. The count may change at any time, as may the
        // answer.
        unsafe {
            (&raw const (*self.mapping()).nrpages).read_volatile() != 0
                && bindings::filemap_range_has_page(self.mapping(), first, last)
        }
    }

    /// Writes the cached bytes `first..=last` back, waits, and drops them from the page cache.
    /// May sleep. Fails with the write-back's error, or `EBUSY` when a page stays in use.
    pub fn flush_cache(&self, first: i64, last: i64) -> Result {
        let inode = self.host();
        // SAFETY: The inode is live, and nothing of it is locked by us.
        unsafe { bindings::nvfs_helper_inode_lock(inode) };
        let result = self.empty_cache(first, last);
        // SAFETY: Locked above.
        unsafe { bindings::nvfs_helper_inode_unlock(inode) };
        if result.is_err() {
            // A journal may hold the pages until its transaction is committed; the next try shall
            // find them free. Its own error is seen again by that try.
            //
            // SAFETY: The file is open.
            unsafe { bindings::vfs_fsync_range(self.as_ptr(), first, last, 1) };
        }
        result
    }
}

/// How often cached pages are written back that a process makes dirty again.
const CACHE_TRIES: u32 = 32;

impl IoFile {
    /// Empties the page cache of a block device over the bytes `first..=last`, and keeps it empty
    /// while the result lives: who touches a mapping of the device waits, and may have locked its
    /// memory. So no user memory may be touched meanwhile. `None` when nothing is cached there and
    /// no process can write to a mapping of it. May sleep.
    ///
    /// To be called before these bytes are written: what a process stores there through a mapping
    /// meanwhile may be lost. A page that is kept busy stays if the device has another exclusive
    /// holder, as a mounted file system.
    ///
    /// The kernel's own direct write goes through the page cache, by the CPU, when it finds a page
    /// that was made dirty again since it was written back.
    #[inline]
    pub fn keep_cache_out(&self, first: i64, last: i64) -> Option<CacheKeptOut> {
        if !self.is_block_device() || last < first {
            return None;
        }
        // SAFETY: The mapping of an open file is live.
        let mapped = unsafe { bindings::nvfs_helper_mapping_writably_mapped(self.mapping()) };
        if !mapped && !self.is_cached(first, last) {
            return None;
        }
        Some(self.lock_cache_out(first, last))
    }

    fn lock_cache_out(&self, first: i64, last: i64) -> CacheKeptOut {
        // SAFETY: The mapping of an open file is live.
        unsafe { bindings::nvfs_helper_invalidate_lock(self.mapping()) };
        // INVARIANT: Locked just now.
        let kept_out = CacheKeptOut(self.clone(), NotThreadSafe);
        // A page that is there can be made dirty again until it is dropped. An error of the drive is
        // the write's own to find.
        for tries in 0..CACHE_TRIES {
            match self.empty_cache(first, last) {
                Err(e) if e == EBUSY => (),
                _ => break,
            }
            if tries > 0 && self.discard_cache(first, last) {
                break;
            }
        }
        kept_out
    }

    /// Drops the cached bytes `first..=last` of a block device, and what was stored there since it
    /// was written back, as `blkdev_fallocate` in `block/fops.c` does with bytes that it is about to
    /// overwrite. Returns whether it could: not if the device has another exclusive holder, whose
    /// pages they may be. May sleep.
    fn discard_cache(&self, first: i64, last: i64) -> bool {
        let holder = self.as_ptr();
        // SAFETY: The file is open and a block special file, so its host is a device's inode.
        let device = unsafe { bindings::I_BDEV(self.host()) };
        // SAFETY: The device lives as long as its file is open. The file is the holder that an
        // exclusive open by it would have named, without operations as there.
        let claimed = unsafe { bindings::bd_prepare_to_claim(device, holder.cast(), null()) };
        if claimed != 0 {
            return false;
        }
        // SAFETY: The mapping of an open file is live; the device is claimed, so no file system has
        // its buffers there.
        unsafe { bindings::nvfs_helper_truncate_pages(self.mapping(), first, last) };
        // SAFETY: Claimed above, by that holder.
        unsafe { bindings::bd_abort_claiming(device, holder.cast()) };
        true
    }

    /// Whether a direct write of the bytes `first..=last`, before which `pages_dirtied` was
    /// `before`, may have gone through the page cache.
    pub(crate) fn was_cached(&self, before: c_uint, first: i64, last: i64) -> bool {
        if self.is_block_device() {
            // Nothing else makes pages dirty there.
            return pages_dirtied() != before;
        }
        // SAFETY: The mapping of an open file is live.
        unsafe { bindings::filemap_range_has_writeback(self.mapping(), first, last) }
    }

    fn empty_cache(&self, first: i64, last: i64) -> Result {
        let page = |byte: i64| usize::try_from(byte >> kernel::page::PAGE_SHIFT).unwrap_or(0);
        // SAFETY: The mapping of an open file is live.
        let written =
            unsafe { bindings::filemap_write_and_wait_range(self.mapping(), first, last) };
        to_result(written)?;
        // SAFETY: As above.
        to_result(unsafe {
            bindings::invalidate_inode_pages2_range(self.mapping(), page(first), page(last))
        })
    }
}

/// A count of the pages that the current task has made dirty; only a change tells something.
#[inline]
pub(crate) fn pages_dirtied() -> c_uint {
    // SAFETY: Reads a field of the current task.
    unsafe { bindings::nvfs_helper_pages_dirtied() }
}

/// No page comes into the page cache of a block device while this lives. To be dropped by the task
/// that made it.
///
/// # Invariants
///
/// The invalidate lock of the file's mapping is held for writing.
pub struct CacheKeptOut(IoFile, NotThreadSafe);

impl Drop for CacheKeptOut {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_invalidate_unlock(self.0.mapping()) }
    }
}

impl Clone for IoFile {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant the file is live.
        unsafe { bindings::nvfs_helper_get_file(self.as_ptr()) };
        // INVARIANT: Just taken.
        Self(self.0)
    }
}

impl Drop for IoFile {
    /// Callable in any context: in an interrupt the kernel puts the close off.
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::fput(self.as_ptr()) }
    }
}

/// Reads the beginning of a small regular file, such as one in sysfs: of the system, whatever the
/// process has mounted in its place. May sleep.
pub fn read_start<const N: usize>(path: &CStr) -> Result<[u8; N]> {
    let mut text = [0; N];
    // SAFETY: `path` is a C string; the buffer has `N` bytes.
    let len = unsafe {
        bindings::nvfs_helper_read_start(path.as_char_ptr(), text.as_mut_ptr().cast(), N)
    };
    if len < 0 {
        return Err(Error::from_errno(c_int::try_from(len).unwrap_or(-5)));
    }
    Ok(text)
}
