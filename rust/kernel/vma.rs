// SPDX-License-Identifier: GPL-2.0

//! Mappings of a device by user space: made by its `mmap`, never split, never moved, filled by
//! faults, and found again from a user address.
//!
//! C header: `include/linux/mm.h`.

use crate::{
    bindings,
    shadow::Fault, //
};
use core::marker::PhantomData;
use kernel::{
    mm::virt::{
        VmaNew,
        VmaRef, //
    },
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::ForeignOwnable, //
};

/// What is mapped. It is shared by the VMAs that show it: one, but for the moment of a refused
/// `mremap`, which copies the VMA before it asks. Its `Drop` is the end of the mapping.
pub trait Mapped: Send + Sync + Sized + 'static {
    /// Handles a fault at `index` pages from the mapping's start. May sleep; runs under the
    /// process's mmap lock or the VMA's own. An error is SIGBUS, or `EFAULT` to who touches it from
    /// the kernel; `ENOMEM` is `ENOMEM` to who pins it.
    fn fault(&self, vma: Faulting<'_>, index: usize) -> Result<Fault>;
}

/// The VMA in which there is a fault.
///
/// # Invariants
///
/// It was made by [`Table::install`], and is locked.
pub struct Faulting<'a>(&'a VmaRef);

impl<'a> Faulting<'a> {
    /// The VMA.
    pub(crate) fn vma(&self) -> &'a VmaRef {
        self.0
    }
}

/// The callbacks of the VMAs that show a `T`.
///
/// A VMA is recognised by the address of its table, so this can only be a `static`, one for each
/// type.
///
/// # Invariants
///
/// A VMA whose `vm_ops` is this table has an `Arc<T>` in `vm_private_data`.
pub struct Table<T: Mapped> {
    ops: bindings::vm_operations_struct,
    _type: PhantomData<fn() -> T>,
}

// SAFETY: Never written.
unsafe impl<T: Mapped> Sync for Table<T> {}

/// A mapping found by [`Table::find`].
pub struct Found<'a, T> {
    /// What is mapped.
    pub data: ArcBorrow<'a, T>,
    /// The mapping's length in bytes.
    pub len: usize,
    /// Whether the process may write to it now.
    pub writable: bool,
}

impl<T: Mapped> Table<T> {
    /// A table; use it as the initializer of a `static`.
    #[allow(clippy::new_without_default, reason = "only for statics")]
    pub const fn new() -> Self {
        Self {
            ops: bindings::vm_operations_struct {
                open: Some(open::<T>),
                close: Some(close::<T>),
                may_split: Some(may_split),
                mremap: Some(mremap),
                fault: Some(fault::<T>),
                // SAFETY: A table without callbacks is all zeroes.
                ..unsafe { core::mem::zeroed() }
            },
            _type: PhantomData,
        }
    }

    /// Makes the VMA that `mmap` is making a mapping of `data`: absent in a forked child and in
    /// core dumps, not growing, not split, not moved.
    pub fn install(&'static self, vma: &VmaNew, data: Arc<T>) {
        vma.set_mixedmap();
        vma.set_dontexpand();
        vma.set_dontdump();
        vma.set_dontcopy();
        // SAFETY: The VMA is being made, so its fields are ours.
        unsafe { (*vma.as_ptr()).vm_private_data = data.into_foreign() };
        // INVARIANT: The private data was set just now.
        //
        // SAFETY: As above; the table lives as long as the module, which the VMA's file pins.
        unsafe { (*vma.as_ptr()).vm_ops = &self.ops };
    }

    /// Calls `take` with the mapping that *starts* at `address` in the current process, which stays
    /// as it is meanwhile. May sleep; `take` must not.
    pub fn find<R>(
        &'static self,
        address: usize,
        take: impl FnOnce(Found<'_, T>) -> R,
    ) -> Option<R> {
        let task = kernel::current!();
        let mm = task.mm()?;
        if let Some(vma) = mm.lock_vma_under_rcu(address) {
            return self.identify(&vma, address).map(take);
        }
        let guard = mm.mmap_read_lock();
        self.identify(guard.vma_lookup(address)?, address).map(take)
    }

    fn identify<'a>(&'static self, vma: &'a VmaRef, address: usize) -> Option<Found<'a, T>> {
        // SAFETY: The VMA is locked against change.
        let ops = unsafe { (*vma.as_ptr()).vm_ops };
        if vma.start() != address || !core::ptr::eq(ops, &self.ops) {
            return None;
        }
        // SAFETY: As above.
        let private = unsafe { (*vma.as_ptr()).vm_private_data };
        // SAFETY: By the type invariant; the VMA keeps its reference while it is locked.
        let data = unsafe { Arc::<T>::borrow(private) };
        Some(Found {
            data,
            len: vma.end() - vma.start(),
            writable: vma.flags() & kernel::mm::virt::flags::WRITE != 0,
        })
    }
}

/// # Safety
///
/// Only for the mm core, on a copy of a VMA that [`Table::install`] made.
unsafe extern "C" fn open<T: Mapped>(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The copy has the private data of the original, which holds a reference.
    let data = unsafe { Arc::<T>::borrow((*vma).vm_private_data) };
    // SAFETY: The copy is not yet visible to others.
    unsafe { (*vma).vm_private_data = Arc::from(data).into_foreign() };
}

/// # Safety
///
/// Only for the mm core, on a VMA that [`Table::install`] or [`open`] made.
unsafe extern "C" fn close<T: Mapped>(vma: *mut bindings::vm_area_struct) {
    // SAFETY: The VMA is gone for all but this call, and owns a reference.
    drop(unsafe { Arc::<T>::from_foreign((*vma).vm_private_data) });
}

/// # Safety
///
/// Only for the mm core.
unsafe extern "C" fn may_split(_vma: *mut bindings::vm_area_struct, _addr: c_ulong) -> c_int {
    ENOMEM.to_errno()
}

/// # Safety
///
/// Only for the mm core.
unsafe extern "C" fn mremap(_vma: *mut bindings::vm_area_struct) -> c_int {
    ENOMEM.to_errno()
}

/// # Safety
///
/// Only for the mm core, for a fault in a VMA that [`Table::install`] made.
unsafe extern "C" fn fault<T: Mapped>(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: The mm core lends us the fault and its VMA.
    let (vma, index) = unsafe { ((*vmf).__bindgen_anon_1.vma, (*vmf).__bindgen_anon_1.pgoff) };
    // SAFETY: As above.
    let by_user = unsafe { (*vmf).flags } & bindings::fault_flag_FAULT_FLAG_USER != 0;
    // SAFETY: The VMA is locked and holds a reference.
    let data = unsafe { Arc::<T>::borrow((*vma).vm_private_data) };
    // INVARIANT: By the safety requirements.
    //
    // SAFETY: As above.
    let vma = Faulting(unsafe { VmaRef::from_raw(vma) });
    match data.fault(vma, index) {
        Ok(Fault::Done) => bindings::vm_fault_reason_VM_FAULT_NOPAGE,
        Ok(Fault::Page(page)) => {
            // SAFETY: The mm core takes the reference over.
            unsafe { (*vmf).page = page.into_raw() };
            0
        }
        // The kernel answers `VM_FAULT_OOM` of an instruction by trying it again, for ever.
        Err(e) if e == ENOMEM && !by_user => bindings::vm_fault_reason_VM_FAULT_OOM,
        Err(_) => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
    }
}
