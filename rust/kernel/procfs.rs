// SPDX-License-Identifier: GPL-2.0

//! A directory below `/proc` and text files in it.
//!
//! C headers: `include/linux/proc_fs.h`, `include/linux/seq_file.h`.

use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    sync::Arc, //
};

/// A file over a shared state of type `T`.
pub trait Show<T>: 'static {
    /// Writes the whole text. May sleep; called again when the text outgrows the buffer.
    fn show(state: &T, m: &SeqFile) -> Result;

    /// Somebody wrote something, whatever it is. May sleep.
    fn written(_state: &T) -> Result {
        Err(EACCES)
    }
}

/// A directory and the state that its files show. Dropping it removes the files and waits for
/// those who are reading them.
///
/// # Invariants
///
/// `entry` was made by `proc_mkdir` and is not yet removed.
pub struct Dir<T> {
    entry: NonNull<bindings::proc_dir_entry>,
    state: Arc<T>,
}

// SAFETY: procfs has its own locks.
unsafe impl<T: Send + Sync> Send for Dir<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Dir<T> {}

impl<T: Send + Sync + 'static> Dir<T> {
    /// Makes `/proc/NAME`; `name` may start with an existing folder. May sleep. Fails with
    /// `ENOMEM`, also when the name is taken.
    pub fn new(name: &CStr, state: Arc<T>) -> Result<Self> {
        // SAFETY: `name` is a C string; NULL is the root.
        let dir = unsafe { bindings::proc_mkdir(name.as_char_ptr(), null_mut()) };
        let entry = NonNull::new(dir).ok_or(ENOMEM)?;
        // INVARIANT: Just made.
        Ok(Self { entry, state })
    }

    /// Adds the file that `S` writes, with mode 0444. Root can write to it all the same, which
    /// is `S::written`.
    pub fn file<S: Show<T>>(&self, name: &CStr) -> Result {
        // SAFETY: `state` lives until `self` has removed the file; the callbacks cast it back.
        let file = unsafe {
            bindings::proc_create_data(
                name.as_char_ptr(),
                0o444,
                self.entry.as_ptr(),
                Table::<T, S>::OPS,
                Arc::as_ptr(&self.state).cast_mut().cast(),
            )
        };
        NonNull::new(file).map(|_| ()).ok_or(ENOMEM)
    }
}

impl<T> Drop for Dir<T> {
    fn drop(&mut self) {
        // Also removes the files, and waits for those who read them; `state` goes after that.
        //
        // SAFETY: By the type invariant.
        unsafe { bindings::proc_remove(self.entry.as_ptr()) }
    }
}

struct Table<T, S>(PhantomData<(T, S)>);

impl<T: Send + Sync + 'static, S: Show<T>> Table<T, S> {
    const OPS: &'static bindings::proc_ops = &bindings::proc_ops {
        proc_open: Some(open::<T, S>),
        proc_read_iter: Some(bindings::seq_read_iter),
        proc_lseek: Some(bindings::seq_lseek),
        proc_write: Some(write::<T, S>),
        proc_release: Some(bindings::single_release),
        // SAFETY: A table without callbacks is all zeroes.
        ..unsafe { core::mem::zeroed() }
    };
}

/// The state of a file of [`Dir::file`].
///
/// # Safety
///
/// `inode` is that of such a file over a `T`, which is not removed while the result is used.
unsafe fn state<'a, T>(inode: *const bindings::inode) -> &'a T {
    // SAFETY: By the safety requirements it is what was given to `proc_create_data`.
    unsafe { &*bindings::nvfs_helper_pde_data(inode).cast::<T>() }
}

/// # Safety
///
/// Only for procfs, on a file made by [`Dir::file`] with the same types.
unsafe extern "C" fn open<T, S: Show<T>>(
    inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: As above.
    let state = unsafe { state::<T>(inode) };
    let state = core::ptr::from_ref(state).cast_mut().cast();
    // SAFETY: The file is being opened; `show` takes the state back as what it is.
    unsafe { bindings::single_open(file, Some(show::<T, S>), state) }
}

/// # Safety
///
/// Only for `seq_file`, on a file that [`open`] with the same types has opened.
unsafe extern "C" fn show<T, S: Show<T>>(m: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: `private` is what was given to `single_open`; procfs keeps the file while it is
    // being read.
    let state = unsafe { &*(*m).private.cast::<T>() };
    // SAFETY: `seq_file` lends `m` to this call alone.
    match S::show(state, unsafe { SeqFile::from_raw(m) }) {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// # Safety
///
/// Only for procfs, on a file made by [`Dir::file`] with the same types.
unsafe extern "C" fn write<T, S: Show<T>>(
    file: *mut bindings::file,
    _text: *const c_char,
    len: usize,
    _pos: *mut bindings::loff_t,
) -> isize {
    // SAFETY: As above; the file is open.
    let state = unsafe { state::<T>((*file).f_inode) };
    match S::written(state) {
        // The VFS allows no write longer than `isize::MAX`.
        Ok(()) => isize::try_from(len).unwrap_or(isize::MAX),
        // CAST: An errno fits any integer type.
        Err(e) => e.to_errno() as isize,
    }
}
