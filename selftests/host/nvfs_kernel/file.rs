// SPDX-License-Identifier: GPL-2.0

use crate::bindings::{self, iov_iter, kiocb};
use std::sync::Arc;

type Iter = unsafe extern "C" fn(*mut kiocb, *mut iov_iter) -> isize;

/// A reference on an open file.
#[derive(Clone)]
pub struct IoFile(pub Arc<bindings::file>);

impl IoFile {
    pub fn new(at_once: bool, dma: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(bindings::file {
            at_once,
            dma: Box::new(dma),
        }))
    }

    pub fn as_ptr(&self) -> *mut bindings::file {
        Arc::as_ptr(&self.0).cast_mut()
    }

    pub fn read_iter(&self) -> Option<Iter> {
        Some(bindings::read_iter)
    }

    pub fn write_iter(&self) -> Option<Iter> {
        None
    }

    pub fn is_regular(&self) -> bool {
        true
    }

    pub fn was_cached(&self, _dirtied: u32, _first: i64, _last: i64) -> bool {
        false
    }
}

pub fn pages_dirtied() -> u32 {
    0
}
