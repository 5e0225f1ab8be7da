// SPDX-License-Identifier: GPL-2.0

//! The files of the module that need no kernel, as they are, and their properties.

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
mod properties;
