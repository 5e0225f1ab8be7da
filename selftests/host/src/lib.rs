// SPDX-License-Identifier: GPL-2.0

//! Files of the module as they are: those that need no kernel, with their properties, and those in
//! which its threads meet, on the stand-ins for the kernel's crates.

#[path = "../../../rust/kernel/extents.rs"]
pub mod extents;
#[path = "../../../src/geometry.rs"]
mod geometry;
#[path = "../../../src/holes.rs"]
mod holes;
#[path = "../../../src/buffer/state.rs"]
mod state;
#[path = "../../../src/topology.rs"]
mod topology;

#[cfg(test)]
mod abi {
    pub(crate) use crate::geometry::BLOCK;
}
#[cfg(test)]
#[path = "../../../src/buffer/life.rs"]
mod life;
#[cfg(test)]
#[path = "../../../src/meta.rs"]
mod meta;
#[cfg(test)]
#[path = "../../../src/io/wait.rs"]
mod wait;
#[cfg(test)]
#[path = "../../../src/window.rs"]
mod window;

#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;

/// For `wait.rs`.
#[cfg(test)]
fn pack(result: &kernel::error::Result<usize>) -> i64 {
    match result {
        Ok(bytes) => *bytes as i64,
        Err(e) => i64::from(e.to_errno()),
    }
}

#[cfg(test)]
fn unpack(told: i64) -> kernel::error::Result<usize> {
    usize::try_from(told).map_err(|_| kernel::error::Error::from_errno(told as i32))
}
