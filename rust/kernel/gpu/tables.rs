// SPDX-License-Identifier: GPL-2.0

//! Reads what the GPU driver says of pinned memory.

use super::{
    functions::{
        DmaMapping,
        PageTable, //
    },
    PinError,
    GPU_PAGE_SIZE, //
};
use crate::{
    alloc::GFP_CHARGED,
    bindings,
    extents::Extent, //
};
use core::ptr::NonNull;
use kernel::prelude::*;

/// What a page table says.
pub struct Layout {
    /// Where the memory is, in order; neighbours that touch are one extent.
    pub extents: KVVec<Extent>,
    /// The GPU's identity.
    pub uuid: [u8; 16],
}

/// Major version of a page table, and the lowest minor of it that we can read.
const VERSIONS: [(u32, u32); 2] = [(1, 2), (2, 0)];

/// Reads where `len` bytes of GPU memory are.
///
/// # Safety
///
/// `table` is valid, of whatever version, and stays so for the call.
pub(super) unsafe fn read_table(table: NonNull<PageTable>, len: u64) -> Result<Layout, PinError> {
    let table = table.as_ptr();
    // SAFETY: Every version begins with its number.
    let version = unsafe { (*table).version };
    if !VERSIONS
        .iter()
        .any(|&(major, minor)| version >> 16 == major && version & 0xffff >= minor)
    {
        return Err(PinError::Version(version));
    }
    // SAFETY: A known version has the fields of our declaration.
    let (page_size, pages, entries, uuid) = unsafe {
        (
            (*table).page_size,
            (*table).pages,
            (*table).entries,
            (*table).gpu_uuid,
        )
    };
    if page_size != bindings::NV_P2P_PAGE_SIZE_64K {
        return Err(PinError::PageSize(page_size));
    }
    if u64::from(entries) != len / GPU_PAGE_SIZE || pages.is_null() {
        return Err(PinError::Malformed);
    }
    let mut extents: KVVec<Extent> = KVVec::new();
    for index in 0..entries as usize {
        // SAFETY: The table has `entries` pointers.
        let page = unsafe { *pages.add(index) };
        if page.is_null() {
            return Err(PinError::Malformed);
        }
        // SAFETY: Each is a valid page.
        let phys = unsafe { (*page).physical_address };
        if phys % GPU_PAGE_SIZE != 0 {
            return Err(PinError::Malformed);
        }
        match extents.last_mut() {
            Some(last) if last.end() == Some(phys) => {
                last.len = last.len.saturating_add(GPU_PAGE_SIZE as usize);
            }
            _ => extents.push(
                Extent {
                    phys,
                    len: GPU_PAGE_SIZE as usize,
                },
                GFP_CHARGED,
            )?,
        }
    }
    let mut identity = [0; 16];
    if !uuid.is_null() {
        // SAFETY: The identity has 16 bytes.
        unsafe { core::ptr::copy_nonoverlapping(uuid, identity.as_mut_ptr(), 16) };
    }
    Ok(Layout {
        extents,
        uuid: identity,
    })
}

/// Reads the bus addresses of `pages` GPU pages.
///
/// # Safety
///
/// `mapping` is valid and stays so for the call.
pub(super) unsafe fn read_mapping(
    mapping: NonNull<DmaMapping>,
    pages: usize,
) -> Result<KVVec<u64>> {
    // SAFETY: By the safety requirements.
    let (page_size, entries, raw) = unsafe {
        let mapping = mapping.as_ptr();
        (
            (*mapping).page_size_type,
            (*mapping).entries,
            (*mapping).dma_addresses,
        )
    };
    if page_size != bindings::NV_P2P_PAGE_SIZE_64K || entries as usize != pages || raw.is_null() {
        return Err(EINVAL);
    }
    let mut addresses = KVVec::with_capacity(pages, GFP_CHARGED)?;
    for index in 0..pages {
        // SAFETY: The mapping has `entries` addresses.
        addresses.push(unsafe { *raw.add(index) }, GFP_CHARGED)?;
    }
    Ok(addresses)
}
