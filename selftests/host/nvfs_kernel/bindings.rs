// SPDX-License-Identifier: GPL-2.0

//! The C functions that `reaper.rs` and `kiocb.rs` call.
#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    clippy::missing_safety_doc
)]

use crate::context;
use core::ffi::{c_char, c_int, c_void};
use kernel::prelude::c_long;
use loom::thread::JoinHandle;
use std::sync::Mutex;

type Work = unsafe extern "C" fn(*mut work_struct);

pub struct work_struct(Option<Work>);

pub struct callback_head;

/// Each work has a thread.
#[derive(Default)]
pub struct workqueue_struct {
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Not the checker's: it orders nothing.
    queued: std::sync::Arc<Mutex<Vec<usize>>>,
}

pub const wq_misc_consts_WORK_CPU_UNBOUND: u32 = 0;

pub unsafe fn nvfs_helper_alloc_workqueue(_name: *const c_char) -> *mut workqueue_struct {
    Box::into_raw(Box::default())
}

pub unsafe fn nvfs_helper_init_work(work: *mut work_struct, func: Option<Work>) {
    unsafe { work.write(work_struct(func)) }
}

pub unsafe fn queue_work_on(_cpu: c_int, queue: *mut workqueue_struct, work: *mut work_struct) {
    let queue = unsafe { &*queue };
    let address = work as usize;
    let func = unsafe { (*work).0 }.unwrap();
    let queued = queue.queued.clone();
    let mut list = queued.lock().unwrap();
    assert!(!list.contains(&address), "queued twice");
    list.push(address);
    drop(list);
    let thread = loom::thread::spawn(move || {
        queued.lock().unwrap().retain(|&other| other != address);
        unsafe { func(address as *mut work_struct) };
        context::run_code();
    });
    queue.threads.lock().unwrap().push(thread);
}

/// Waits for the work that is queued.
pub unsafe fn destroy_workqueue(queue: *mut workqueue_struct) {
    let queue = unsafe { Box::from_raw(queue) };
    for thread in queue.threads.into_inner().unwrap() {
        thread.join().unwrap();
    }
}

/// The grace period is over at once, which it may be where sleeping is legal.
pub unsafe fn call_rcu(
    head: *mut callback_head,
    func: Option<unsafe extern "C" fn(*mut callback_head)>,
) {
    context::synchronize();
    unsafe { func.unwrap()(head) }
}

pub unsafe fn rcu_barrier() {}

pub unsafe fn nvfs_helper_synchronize_callers() {
    context::synchronize()
}

pub unsafe fn nvfs_helper_may_sleep() -> bool {
    context::may_sleep()
}

pub struct iov_iter {
    pub iov_offset: usize,
}

/// A file, whose data is moved by `dma`: at once, or by an interrupt.
pub struct file {
    pub at_once: bool,
    pub dma: Box<dyn Fn() + Send + Sync>,
}

pub struct kiocb {
    pub ki_filp: *mut file,
    pub ki_pos: i64,
    pub ki_complete: Option<unsafe extern "C" fn(*mut kiocb, c_long)>,
    pub ki_flags: c_int,
    pub ki_ioprio: u16,
}

pub const EIOCBQUEUED: u32 = 529;
pub const IOCB_WRITE: u32 = 1;
pub const IOCB_DIRECT: u32 = 2;

pub unsafe extern "C" fn read_iter(iocb: *mut kiocb, _iter: *mut iov_iter) -> isize {
    // The kiocb keeps the file.
    let file: &'static file = unsafe { &*(*iocb).ki_filp };
    if file.at_once {
        (file.dma)();
        return 4096;
    }
    let address = iocb as usize;
    loom::thread::spawn(move || {
        context::interrupt(|| {
            (file.dma)();
            let iocb = address as *mut kiocb;
            unsafe { (*iocb).ki_complete.unwrap()(iocb, 4096) }
        })
    });
    // As ext4 does, to note the time of access.
    loom::thread::yield_now();
    let again: *const file = unsafe { (*iocb).ki_filp };
    assert!(core::ptr::eq(again, file), "the iocb is another transfer's");
    -(EIOCBQUEUED as isize)
}

pub unsafe fn nvfs_helper_init_sync_kiocb(iocb: *mut kiocb, file: *mut file) {
    let new = kiocb {
        ki_filp: file,
        ki_pos: 0,
        ki_complete: None,
        ki_flags: 0,
        ki_ioprio: 0,
    };
    unsafe { iocb.write(new) }
}

pub unsafe fn rw_verify_area(_rw: c_int, _file: *mut file, _pos: *const i64, _len: usize) -> c_int {
    0
}

pub unsafe fn import_ubuf(
    _rw: c_int,
    _address: *mut c_void,
    _len: usize,
    _iter: *mut iov_iter,
) -> c_int {
    0
}

pub unsafe fn nvfs_helper_kiocb_set_apart(_iocb: *mut kiocb, _privileged: bool) {}

pub unsafe fn nvfs_helper_kiocb_start_write(_iocb: *mut kiocb) {}

pub unsafe fn nvfs_helper_kiocb_end_write(_iocb: *mut kiocb) {}

pub unsafe fn nvfs_helper_fsnotify(_file: *mut file, _write: bool) {}
