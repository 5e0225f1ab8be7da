// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of the group `nvidia_fs`. One that is off costs a no-op jump: what it would say
//! is a closure, which is called only when it is on. All are callable in any context.
//!
//! GPUs and peers are numbers as [`Address::to_pdevinfo`](crate::pci::Address::to_pdevinfo) makes
//! them, 0 when not known. The device is `major << 20 | minor`, bytes and offsets are in bytes.
//!
//! C header: `rust/helpers/events.h`.

use crate::{
    bindings,
    kiocb::Direction, //
};
use kernel::{
    jump_label::static_branch_unlikely,
    prelude::*, //
};

/// A read or write.
#[derive(Clone, Copy)]
pub struct Transfer {
    /// The GPU.
    pub gpu: u64,
    /// The file's device.
    pub device: u32,
    /// Where the data goes.
    pub direction: Direction,
    /// It goes through the hooks of a storage driver, not by P2PDMA.
    pub callback: bool,
    /// In the file.
    pub offset: i64,
    /// How much was asked for.
    pub bytes: u64,
}

fn op(direction: Direction) -> u32 {
    match direction {
        Direction::Read => 0,
        Direction::Write => 1,
    }
}

/// Whether a tracepoint is on.
macro_rules! is_on {
    ($tracepoint:ident) => {{
        #[cfg(CONFIG_TRACEPOINTS)]
        {
            // SAFETY: The key of a tracepoint that C defines.
            unsafe { static_branch_unlikely!(bindings::$tracepoint, bindings::tracepoint, key) }
        }
        #[cfg(not(CONFIG_TRACEPOINTS))]
        false
    }};
}

/// Hits a tracepoint.
macro_rules! hit {
    ($function:ident($($arg:expr),* $(,)?)) => {
        #[cfg(CONFIG_TRACEPOINTS)]
        {
            // SAFETY: All arguments are plain values, or a string with its length.
            unsafe { bindings::$function($($arg),*) };
        }
        #[cfg(not(CONFIG_TRACEPOINTS))]
        let _ = ($($arg),*);
    };
}

/// Whether [`complete`] is on, so that a request that begins has to be timed.
#[inline(always)]
pub fn times_requests() -> bool {
    is_on!(__tracepoint_nvfs_complete)
}

/// GPU memory at `va` was mapped to `shadow` bytes of shadow memory, or not: `(gpu, va, bytes,
/// shadow, result)`.
#[inline(always)]
pub fn map(f: impl FnOnce() -> (u64, u64, u64, u64, c_int)) {
    if is_on!(__tracepoint_nvfs_map) {
        let (gpu, va, bytes, shadow, result) = f();
        hit!(rust_do_trace_nvfs_map(gpu, va, bytes, shadow, result));
    }
}

/// That was undone: `(gpu, va, bytes)`.
#[inline(always)]
pub fn unmap(f: impl FnOnce() -> (u64, u64, u64)) {
    if is_on!(__tracepoint_nvfs_unmap) {
        let (gpu, va, bytes) = f();
        hit!(rust_do_trace_nvfs_unmap(gpu, va, bytes));
    }
}

/// A way was found for a transfer, which begins: and whether it is synchronous.
#[inline(always)]
pub fn submit(f: impl FnOnce() -> (Transfer, bool)) {
    if is_on!(__tracepoint_nvfs_submit) {
        let (t, sync) = f();
        hit!(rust_do_trace_nvfs_submit(
            t.gpu,
            t.device,
            op(t.direction),
            u32::from(t.callback),
            t.offset,
            t.bytes,
            sync,
        ));
    }
}

/// It is over: and its result, bytes or a negative errno, and how long it took, in microseconds.
#[inline(always)]
pub fn complete(f: impl FnOnce() -> (Transfer, i64, u64)) {
    if is_on!(__tracepoint_nvfs_complete) {
        let (t, result, micros) = f();
        hit!(rust_do_trace_nvfs_complete(
            t.gpu,
            t.device,
            op(t.direction),
            u32::from(t.callback),
            t.offset,
            t.bytes,
            result,
            micros,
        ));
    }
}

/// There is no way for a transfer: `(gpu, device, direction, reason, result)`.
#[inline(always)]
pub fn refuse(f: impl FnOnce() -> (u64, u32, Direction, &'static str, c_int)) {
    if is_on!(__tracepoint_nvfs_refuse) {
        let (gpu, device, direction, reason, result) = f();
        hit!(rust_do_trace_nvfs_refuse(
            gpu,
            device,
            op(direction),
            reason.as_ptr(),
            reason.len(),
            result,
        ));
    }
}

/// A storage driver got a segment: `(gpu, peer, bus address, bytes)`.
#[inline(always)]
pub fn dma_map(f: impl FnOnce() -> (u64, u64, u64, u64)) {
    if is_on!(__tracepoint_nvfs_dma_map) {
        let (gpu, peer, address, bytes) = f();
        hit!(rust_do_trace_nvfs_dma_map(gpu, peer, address, bytes));
    }
}

/// It gave one back, and said that it is this: `(gpu, bus address, bytes)`.
#[inline(always)]
pub fn dma_unmap(f: impl FnOnce() -> (u64, u64, u64)) {
    if is_on!(__tracepoint_nvfs_dma_unmap) {
        let (gpu, address, bytes) = f();
        hit!(rust_do_trace_nvfs_dma_unmap(gpu, address, bytes));
    }
}

/// GPU memory is going away, and no DMA to it is left: `(gpu, va, bytes, microseconds waited)`.
#[inline(always)]
pub fn free_callback(f: impl FnOnce() -> (u64, u64, u64, u64)) {
    if is_on!(__tracepoint_nvfs_free_callback) {
        let (gpu, va, bytes, micros) = f();
        hit!(rust_do_trace_nvfs_free_callback(gpu, va, bytes, micros));
    }
}
