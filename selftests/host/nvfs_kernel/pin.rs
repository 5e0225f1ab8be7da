// SPDX-License-Identifier: GPL-2.0

//! User memory that the kernel writes and the process polls.

use kernel::prelude::*;
use loom::sync::atomic::{fence, AtomicU64, Ordering};

/// The first 56 bytes of a page of the process, which must outlive all pins; an atomic each 4.
pub struct UserPage(Vec<AtomicU64>);

impl UserPage {
    pub fn new() -> Self {
        Self((0..14).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn address(&self) -> u64 {
        self as *const Self as u64
    }

    /// The process looks.
    pub fn load(&self, offset: usize) -> u64 {
        self.0[offset / 4].load(Ordering::Acquire)
    }
}

pub struct PinnedUser<const LEN: usize>(*const UserPage);

// SAFETY: It only has atomics.
unsafe impl<const LEN: usize> Send for PinnedUser<LEN> {}
// SAFETY: As above.
unsafe impl<const LEN: usize> Sync for PinnedUser<LEN> {}

impl<const LEN: usize> PinnedUser<LEN> {
    pub fn new(address: usize) -> Result<Self> {
        Ok(Self(address as *const UserPage))
    }

    pub fn store<T: Integer>(&self, offset: usize, value: T) {
        // SAFETY: The page outlives the pin.
        if let Some(word) = unsafe { &*self.0 }.0.get(offset / 4) {
            word.store(value.bits(), Ordering::Relaxed);
        }
    }
}

pub trait Integer {
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($t:ty)*) => { $(
        impl Integer for $t {
            fn bits(self) -> u64 {
                self as u64
            }
        }
    )* };
}

integers!(u32 u64 i64);

/// All stores before it are visible before those after it.
pub fn publish() {
    fence(Ordering::Release);
}
