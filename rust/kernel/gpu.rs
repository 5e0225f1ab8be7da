// SPDX-License-Identifier: GPL-2.0

//! NVIDIA's GPU driver: pinned GPU memory, and what happens when it goes away.
//!
//! The driver's functions are looked up when the first buffer is pinned and let go with the last
//! one, so an idle module does not hold the GPU driver. Only GPL exports can be had, so only
//! NVIDIA's open kernel module works.
//!
//! Lock order: the lock of `callbacks` before nothing. A pin's table lock is held over the driver's
//! `get_pages` and `free_page_table`, never over `put_pages`, which may wait for a running callback. A
//! callback waits for users of the table and for transfers, never for the pin's end, which waits for
//! it.
//!
//! Follows section 18 of the contract; header: `include/nv_p2p.h`.

mod callbacks;
mod functions;
mod peers;
mod tables;

use crate::{
    alloc::GFP_CHARGED,
    completion::Event,
    pci::Function,
    symbol::Symbol, //
};
use callbacks::Freed;
use core::ptr::{
    null_mut,
    NonNull, //
};
use functions::{
    DmaMapping,
    Driver,
    FreeMapping,
    FreePageTable,
    PageTable, //
};
use kernel::{
    error::to_result,
    pr_warn_once,
    prelude::*,
    sync::{
        lock::{
            mutex::MutexBackend,
            Guard, //
        },
        new_condvar,
        new_mutex,
        Arc,
        CondVar,
        Mutex, //
    },
};
use peers::{
    Peer,
    Peers, //
};
pub use tables::Layout;
use tables::{
    read_mapping,
    read_table, //
};

/// Bytes of a GPU page.
pub const GPU_PAGE_SIZE: u64 = 65536;

/// Access to this file's global state; there is one, made when the module is loaded.
pub struct Interface(());

impl Interface {
    /// # Safety
    ///
    /// To be called once, before anything else of this file is used.
    unsafe fn init() {
        // SAFETY: By the safety requirements.
        unsafe { functions::init() };
        // SAFETY: By the safety requirements.
        unsafe { callbacks::init() };
    }

    /// For the module's `init`, once.
    pub fn new(_module: &'static ThisModule) -> Result<Self> {
        use kernel::sync::atomic::{Atomic, Relaxed};
        static MADE: Atomic<u32> = Atomic::new(0);
        MADE.cmpxchg(0, 1, Relaxed).map_err(|_| EBUSY)?;
        // SAFETY: Once, by the check; pinning asks for `&Interface`.
        unsafe { Self::init() };
        Ok(Self(()))
    }

    /// Whether NVIDIA's open driver is loaded now.
    pub fn is_present(&self) -> bool {
        Symbol::get(c"nvidia_p2p_get_pages").is_some()
    }
}

/// Who must stop when pinned memory goes away.
pub trait Owner: Send + Sync + 'static {
    /// The memory is going away: no new DMA may start, and none may be going on when this returns.
    /// Sleeps for as long as that takes.
    fn stop(&self);

    /// The memory is gone. May sleep.
    fn gone(&self);

    /// The memory was made known to a peer.
    fn mapped(&self);

    /// It is not any more.
    fn unmapped(&self);
}

/// Who has the page table.
///
/// # Invariants
///
/// A table that is `Held`, or that a callback finds `Putting`, is the GPU driver's, valid, and neither put nor freed by us.
enum Table {
    /// There is none (yet).
    None,
    Held(NonNull<PageTable>),
    /// We are giving it back, or have. A free callback that comes for it has won: the GPU driver has
    /// taken the table back already, leaves freeing it to the callback, and ignores our put, for
    /// which it may have waited for the callback or not.
    Putting(NonNull<PageTable>),
    /// The free callback took it.
    Freed,
}

/// What the GPU driver has given us.
struct Given {
    table: Table,
    /// Made from the table, one a peer; freed before it.
    mappings: KVec<(Function, NonNull<DmaMapping>)>,
    /// How many use the table without the lock. A free callback waits until none does.
    users: usize,
}

/// The state that a pin shares with its free callback.
#[pin_data]
struct Inner<O> {
    owner: O,
    free_page_table: Option<FreePageTable>,
    free_mapping: Option<FreeMapping>,
    #[pin]
    given: Mutex<Given>,
    /// `users` is 0.
    #[pin]
    unused: CondVar,
    /// The last callback is over that began before the pin ended.
    #[pin]
    callbacks_over: Event,
}

// SAFETY: The table is used under the lock, or by `users`, for whom a free callback waits.
unsafe impl<O: Owner> Send for Inner<O> {}
// SAFETY: As above.
unsafe impl<O: Owner> Sync for Inner<O> {}

impl<O: Owner> Freed for Inner<O> {
    fn freed(&self) {
        self.owner.stop();
        let mut given = self.given.lock();
        while given.users > 0 {
            self.unused.wait(&mut given);
        }
        let (Table::Held(freed) | Table::Putting(freed)) = given.table else {
            // There was none, or another callback has it.
            return;
        };
        given.table = Table::Freed;
        for (_, mapping) in given.mappings.drain_all() {
            self.owner.unmapped();
            if let Some(free_mapping) = self.free_mapping {
                // SAFETY: The GPU driver made it, and nobody else frees or unmaps it.
                let error = unsafe { free_mapping(mapping.as_ptr()) };
                if error != 0 {
                    pr_warn_once!(
                        "the GPU driver failed to free a DMA mapping: error {}\n",
                        error
                    );
                }
            }
        }
        if let Some(free_page_table) = self.free_page_table {
            // SAFETY: By the type invariant; the GPU driver is calling us, so it is there.
            let error = unsafe { free_page_table(freed.as_ptr()) };
            if error != 0 {
                pr_warn_once!(
                    "the GPU driver failed to free a page table: error {}\n",
                    error
                );
            }
        }
        drop(given);
        self.owner.gone();
    }

    fn callbacks_over(&self) {
        self.callbacks_over.complete_all();
    }
}

/// How GPU memory is pinned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The memory can go away, and its owner is told.
    Legacy,
    /// The memory stays until the pin goes.
    Persistent,
}

/// Why memory could not be pinned.
pub enum PinError {
    /// The GPU driver is not there, or lacks the functions.
    NoDriver,
    /// The GPU driver's error.
    Driver(Error),
    /// A page table of a version that we do not know.
    Version(u32),
    /// GPU pages that are not 64 KiB; the value of the field.
    PageSize(u32),
    /// The page table does not cover the range.
    Malformed,
    /// The memory went away meanwhile, or memory of our own is short.
    Other(Error),
}

impl From<Error> for PinError {
    fn from(e: Error) -> Self {
        PinError::Other(e)
    }
}

impl From<kernel::alloc::AllocError> for PinError {
    fn from(_: kernel::alloc::AllocError) -> Self {
        PinError::Other(ENOMEM)
    }
}

impl PinError {
    /// What the user is told.
    pub fn errno(&self) -> Error {
        match self {
            PinError::NoDriver => ENODEV,
            PinError::Driver(e) | PinError::Other(e) => *e,
            PinError::Version(_) | PinError::PageSize(_) | PinError::Malformed => EINVAL,
        }
    }
}

/// A range of GPU memory that the GPU driver keeps in place, or tells `O` about.
pub struct PinnedGpu<O: Owner> {
    kind: Kind,
    number: usize,
    va: u64,
    pages: usize,
    peers: Peers,
    inner: Arc<Inner<O>>,
    driver: Driver,
}

impl<O: Owner> PinnedGpu<O> {
    /// Pins `len` bytes at GPU address `va` of the current process; both are multiples of
    /// [`GPU_PAGE_SIZE`]. With [`Kind::Legacy`] `owner` may be told to stop from now on.
    ///
    /// May sleep.
    pub fn new(
        _interface: &Interface,
        kind: Kind,
        va: u64,
        len: u64,
        owner: O,
    ) -> Result<(Self, Layout), PinError> {
        let driver = match Driver::get() {
            Err(e) if e == ENODEV => return Err(PinError::NoDriver),
            other => other?,
        };
        let (legacy, dma) = (driver.0.legacy, driver.0.dma);
        let inner = Arc::pin_init(
            pin_init!(Inner {
                owner,
                free_page_table: legacy.map(|legacy| legacy.free_page_table),
                free_mapping: dma.map(|dma| dma.free_mapping),
                given <- new_mutex!(Given {
                    table: Table::None,
                    mappings: KVec::new(),
                    users: 0,
                }),
                unused <- new_condvar!(),
                callbacks_over <- Event::new(),
            }),
            GFP_KERNEL,
        )?;
        let number = match kind {
            Kind::Legacy => callbacks::register(inner.clone())?,
            Kind::Persistent => 0,
        };
        // From here on `drop` undoes it all.
        let pin = Self {
            kind,
            number,
            va,
            pages: usize::try_from(len / GPU_PAGE_SIZE).map_err(|_| EINVAL)?,
            peers: Peers::new(),
            inner,
            driver,
        };

        let mut given = pin.inner.given.lock();
        let mut raw = null_mut();
        let error = match (kind, legacy, pin.driver.0.persistent) {
            // SAFETY: The arguments are as the GPU driver wants them; the callback takes any data.
            (Kind::Legacy, Some(legacy), _) => unsafe {
                (legacy.get_pages)(
                    0,
                    0,
                    va,
                    len,
                    &mut raw,
                    Some(callbacks::free_callback),
                    core::ptr::without_provenance_mut(number),
                )
            },
            // SAFETY: As above.
            (Kind::Persistent, _, Some(persistent)) => unsafe {
                (persistent.get_pages)(va, len, &mut raw, 0)
            },
            _ => {
                drop(given);
                return Err(PinError::NoDriver);
            }
        };
        if let Err(e) = to_result(error) {
            drop(given);
            return Err(PinError::Driver(e));
        }
        let Some(raw) = NonNull::new(raw) else {
            drop(given);
            return Err(PinError::Malformed);
        };
        // INVARIANT: The GPU driver has just made it.
        given.table = Table::Held(raw);
        // SAFETY: As above; the lock keeps the callback out.
        let layout = unsafe { read_table(raw, len) };
        drop(given);
        Ok((pin, layout?))
    }
}

impl<O: Owner> PinnedGpu<O> {
    /// Gives the pages back. May sleep, also until a callback that runs has returned.
    fn put(&self, table: NonNull<PageTable>) {
        let error = match (self.kind, self.driver.0.legacy, self.driver.0.persistent) {
            // SAFETY: By the invariants of `Table` it was ours, and nobody else puts it now. If the
            // GPU driver takes it back meanwhile, it knows, and ignores this.
            (Kind::Legacy, Some(legacy), _) => unsafe {
                (legacy.put_pages)(0, 0, self.va, table.as_ptr())
            },
            // SAFETY: As above; nothing can take it back.
            (Kind::Persistent, _, Some(persistent)) => unsafe {
                (persistent.put_pages)(self.va, table.as_ptr(), 0)
            },
            // The functions were there when the table was made, and are held since.
            _ => 0,
        };
        if error != 0 {
            pr_warn_once!("the GPU driver failed to put pages: error {}\n", error);
        }
    }
}

impl<O: Owner> PinnedGpu<O> {
    /// Makes the memory known to a peer, so that [`addresses`](Self::addresses) finds it. Does
    /// nothing when it is already. May sleep.
    ///
    /// Errors: those of the GPU driver; `ENODEV` when it cannot do it at all; `EINVAL` for an
    /// answer that does not cover the memory; `EIO` when the memory is gone; `ENOMEM`.
    pub fn map_for(&self, peer: &Function) -> Result {
        if self.peers.find(peer).is_some() {
            return Ok(());
        }
        let dma = self.driver.0.dma.ok_or(ENODEV)?;
        let mut given = self.inner.given.lock();
        let Table::Held(table) = given.table else {
            return Err(EIO);
        };
        given.users += 1;
        drop(given);

        let mut raw = null_mut();
        // SAFETY: The table is ours while it has users; the function is held.
        let mapped = to_result(unsafe { (dma.map_pages)(peer.as_ptr(), table.as_ptr(), &mut raw) });
        let mapped = mapped.and_then(|()| NonNull::new(raw).ok_or(EINVAL));
        let kept = mapped.and_then(|mapping| {
            self.keep(peer, mapping)
                .inspect_err(|_| self.unmap(table, peer, mapping))
        });
        drop(self.done());
        kept
    }

    /// Notes a new mapping for its end and for its use.
    fn keep(&self, peer: &Function, mapping: NonNull<DmaMapping>) -> Result {
        // SAFETY: The GPU driver has just made it.
        let addresses = unsafe { read_mapping(mapping, self.pages) }?;
        let made = Peer::new(peer.clone(), addresses)?;
        self.inner
            .given
            .lock()
            .mappings
            .push((peer.clone(), mapping), GFP_CHARGED)?;
        self.peers.add(made);
        self.inner.owner.mapped();
        Ok(())
    }

    /// The bus address of each GPU page for a peer that [`map_for`](Self::map_for) was called with.
    /// Any other is wanted from now on, of which there can be a few. Callable in any context.
    /// Good for DMA only while [`Owner::stop`] has not returned.
    pub fn addresses(&self, peer: &Function) -> Option<&[u64]> {
        let found = self.peers.find(peer);
        if found.is_none() {
            self.peers.want(peer);
        }
        found
    }

    /// Whether addresses were wanted for a peer that has none.
    pub fn wants_peer(&self) -> bool {
        self.peers.are_wanted()
    }

    /// Makes the memory known to the peers that want it; whether there was one. May sleep. Errors:
    /// as for [`map_for`](Self::map_for), the first of those that failed; all others were done.
    pub fn map_wanted(&self) -> Result<bool> {
        let mut done = Ok(false);
        for peer in self.peers.wanted() {
            let mapped = self.map_for(&peer).map(|()| true);
            done = done.and(mapped);
        }
        done
    }

    /// One user of the table less.
    fn done(&self) -> Guard<'_, Given, MutexBackend> {
        let mut given = self.inner.given.lock();
        // OVERFLOW: The caller has counted itself.
        given.users -= 1;
        if given.users == 0 {
            self.inner.unused.notify_all();
        }
        given
    }

    /// Takes a peer's mapping back. May sleep.
    fn unmap(&self, table: NonNull<PageTable>, peer: &Function, mapping: NonNull<DmaMapping>) {
        let Some(dma) = self.driver.0.dma else {
            return;
        };
        // SAFETY: The GPU driver made it for this peer from this table, and nobody else unmaps or
        // frees it; the table is ours.
        let error = unsafe { (dma.unmap_pages)(peer.as_ptr(), table.as_ptr(), mapping.as_ptr()) };
        if error != 0 {
            pr_warn_once!("the GPU driver failed to unmap pages: error {}\n", error);
        }
    }
}

impl<O: Owner> Drop for PinnedGpu<O> {
    fn drop(&mut self) {
        let mut given = self.inner.given.lock();
        if let Table::Held(held) = given.table {
            let mappings = core::mem::replace(&mut given.mappings, KVec::new());
            given.users += 1;
            drop(given);
            for (peer, mapping) in mappings {
                self.unmap(held, &peer, mapping);
                self.inner.owner.unmapped();
            }
            given = self.done();
            given.table = Table::Putting(held);
            drop(given);
            self.put(held);
        } else {
            drop(given);
        }
        if self.kind == Kind::Legacy {
            // Nothing of ours may go before the callbacks are through. One that the put has not
            // waited for finds the table, and frees it.
            callbacks::unregister(self.number, &self.inner.callbacks_over);
        }
    }
}
