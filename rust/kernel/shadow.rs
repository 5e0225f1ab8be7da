// SPDX-License-Identifier: GPL-2.0

//! Memory that stands for device memory in user space: zeroed pages in large folios, made when
//! first touched and charged to the memory cgroup of the process that they are mapped in.
//!
//! The pages go through file systems and the block layer like any others, lent to a transfer as
//! they are ([`Lent`]) or found by `get_user_pages` where network file systems want that, and can be
//! told from all others by `Space::find`, in any context: `folio->mapping` is an address
//! space of our own, `folio->private` the owner, `folio->index` the place in its memory. The
//! address space belongs to an anonymous inode and has no pages in its tree; that it is not NULL
//! also keeps the pages on the fast path of `get_user_pages`.
//!
//! C headers: `include/linux/mm_types.h`, `include/linux/pagemap.h`; `mm/secretmem.c` recognises
//! its folios in the same way.

use crate::{
    bindings,
    extents::locate,
    reaper::Reaped,
    vma::Faulting, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::{
        null_mut,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        AtomicUsize,
        Ordering, //
    },
};
use kernel::{
    alloc::Flags,
    current,
    error::from_err_ptr,
    mm::MmWithUser,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        new_mutex,
        rcu,
        Arc,
        Mutex, //
    },
};

/// How to allocate what is kept of each piece, 48 bytes. It is not charged to a memory cgroup: who
/// touches a piece first may be another process than the one whose memory, and charge, it is.
const LISTS: Flags = GFP_KERNEL;

/// The largest folio: 2^9 pages, 2 MiB with pages of 4 KiB.
const MAX_ORDER: usize = 9;

/// The mark of shadow pages whose owner is a [`Reaped<T>`].
///
/// A page is recognised by the address of the mark, so this can only be a `static`, one for each
/// type.
///
/// # Invariants
///
/// - `mark` is null, or the address space of the file of the one [`Opened`].
/// - A folio whose `mapping` is `mark` was made by [`Pages::fault`] with this space, and its
///   `private` is null or a `Reaped<T>` that stays readable for RCU readers.
pub struct Space<T> {
    mark: AtomicPtr<bindings::address_space>,
    folios: AtomicUsize,
    _type: PhantomData<fn() -> T>,
}

/// Where a page belongs, see `Space::find`.
pub struct Place<T: Send + Sync + 'static> {
    /// Whose memory it is.
    pub owner: ARef<Reaped<T>>,
    /// The page's index there.
    pub index: usize,
    /// How many pages from here on follow one another both there and in physical memory.
    pub pages: usize,
}

impl<T: Send + Sync + 'static> Space<T> {
    /// A mark; use it as the initializer of a `static`.
    #[allow(clippy::new_without_default, reason = "only for statics")]
    pub const fn new() -> Self {
        // INVARIANT: Null, and there are no such folios.
        Self {
            mark: AtomicPtr::new(null_mut()),
            folios: AtomicUsize::new(0),
            _type: PhantomData,
        }
    }

    /// Makes the mark. To be held until no page and no user of it is left. May sleep.
    ///
    /// Errors: `EBUSY` when it was made already, `ENOMEM`.
    pub fn open(&'static self) -> Result<Opened<T>> {
        // SAFETY: Only allocates.
        let file = from_err_ptr(unsafe { bindings::nvfs_helper_mark_file() })?;
        // INVARIANT: A new file, with a reference that is ours.
        let opened = Opened {
            space: self,
            file: NonNull::new(file).ok_or(ENOMEM)?,
        };
        // SAFETY: As above.
        let mark = unsafe { (*file).f_mapping };
        // INVARIANT: The address space of that file.
        self.mark
            .compare_exchange(null_mut(), mark, Ordering::Release, Ordering::Relaxed)
            .map_err(|_| EBUSY)?;
        Ok(opened)
    }

    /// Whether there are no shadow pages at all. Callable in any context.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.folios.load(Ordering::Relaxed) == 0
    }

    /// Whose shadow page `page` is, if it is one. Any page will do. Callable in any context.
    ///
    /// # Safety
    ///
    /// `page` is a `struct page`, on which the caller has a reference.
    pub(crate) unsafe fn find(&self, page: *const bindings::page) -> Option<Place<T>> {
        let (mut index, mut pages) = (0, 0);
        let guard = rcu::read_lock();
        // SAFETY: By the safety requirements.
        let owner = unsafe { self.owner(page, &mut index, &mut pages) }?;
        // SAFETY: By the type invariants it is readable until the guard goes.
        let owner = unsafe { Reaped::try_get(owner) };
        drop(guard);
        Some(Place {
            owner: owner?,
            index,
            pages,
        })
    }

    /// Whether `page` is a shadow page. Callable in any context.
    ///
    /// # Safety
    ///
    /// As for [`find`](Self::find).
    pub(crate) unsafe fn contains(&self, page: *const bindings::page) -> bool {
        let (mut index, mut pages) = (0, 0);
        // SAFETY: By the safety requirements.
        unsafe { self.owner(page, &mut index, &mut pages) }.is_some()
    }

    /// # Safety
    ///
    /// As for [`find`](Self::find).
    unsafe fn owner(
        &self,
        page: *const bindings::page,
        index: &mut usize,
        pages: &mut usize,
    ) -> Option<NonNull<Reaped<T>>> {
        let mark = self.mark.load(Ordering::Acquire);
        if mark.is_null() {
            return None;
        }
        // SAFETY: By the safety requirements.
        let owner = unsafe { bindings::nvfs_helper_shadow_owner(page, mark, index, pages) };
        NonNull::new(owner.cast())
    }
}

/// A [`Space`] that is in use. Dropping it takes the mark away, unless pages with it are left: then the
/// kernel warns, and it stays.
///
/// # Invariants
///
/// A reference on `file` is owned.
pub struct Opened<T: 'static> {
    space: &'static Space<T>,
    file: NonNull<bindings::file>,
}

// SAFETY: A reference on a file belongs to no thread.
unsafe impl<T> Send for Opened<T> {}
// SAFETY: As above.
unsafe impl<T> Sync for Opened<T> {}

impl<T> Drop for Opened<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        let mark = unsafe { (*self.file.as_ptr()).f_mapping };
        // One that found the mark taken must leave it.
        if self.space.mark.load(Ordering::Relaxed) == mark {
            // Pages that are left name the mark: it stays as long as they do, for ever.
            if kernel::warn_on!(self.space.folios.load(Ordering::Relaxed) != 0) {
                return;
            }
            self.space.mark.store(null_mut(), Ordering::Relaxed);
        }
        // SAFETY: By the type invariant. At once, as the file's operations are in this module.
        unsafe { bindings::__fput_sync(self.file.as_ptr()) }
    }
}

/// A folio of ours.
///
/// # Invariants
///
/// `raw` was made by `nvfs_helper_shadow_alloc`, and the first reference is owned.
struct Folio {
    raw: NonNull<bindings::folio>,
    /// The count that it is in.
    count: &'static AtomicUsize,
}

// SAFETY: Folio references belong to no thread.
unsafe impl Send for Folio {}

impl Folio {
    /// Whether `len` bytes from byte `at` on, all of them in the folio, are zero.
    fn is_zero(&self, at: usize, len: usize) -> bool {
        // SAFETY: By the type invariant; on a 64-bit kernel every page has an address.
        let base = unsafe {
            bindings::nvfs_helper_page_address(bindings::nvfs_helper_folio_page(
                self.raw.as_ptr(),
                0,
            ))
        };
        // SAFETY: The bytes are in the folio; C code reads them, as the process may write to them.
        unsafe { bindings::memchr_inv(base.byte_add(at), 0, len) }.is_null()
    }
}

impl Drop for Folio {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_shadow_free(self.raw.as_ptr()) };
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One piece of the memory.
struct Piece {
    /// Index of its first page.
    first: usize,
    pages: usize,
    folio: Folio,
}

/// Shadow memory of a fixed length, of which nothing exists until it is touched.
#[pin_data]
pub struct Pages {
    len: usize,
    #[pin]
    made: Mutex<Made>,
}

/// What there is of it.
struct Made {
    /// In order of `first`.
    pieces: KVec<Piece>,
    /// Those that were lent last, and their neighbours.
    list: Option<Arc<List>>,
}

/// What to do about a page fault.
pub enum Fault {
    /// The page is shown now.
    Done,
    /// This page is to be shown; a reference goes with it.
    Page(SharedPage),
}

/// A counted reference on a page of ours.
///
/// # Invariants
///
/// One reference on the page is owned.
pub struct SharedPage(NonNull<bindings::page>);

impl SharedPage {
    /// Gives the reference away.
    pub(crate) fn into_raw(self) -> *mut bindings::page {
        core::mem::ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_put_page(self.0.as_ptr()) }
    }
}

/// Pieces that follow one another, as the block layer takes them. Their pages stay while this lives.
///
/// # Invariants
///
/// - Each of `bvecs` is a whole folio of shadow pages, with a reference on it.
/// - `starts` has the place of each, in bytes behind `start`, which is a place in the shadow memory;
///   together they have `len` bytes.
struct List {
    start: usize,
    len: usize,
    starts: KVVec<usize>,
    bvecs: KVVec<bindings::bio_vec>,
}

// SAFETY: Folio references belong to no thread; the memory is only given to the kernel's I/O code.
unsafe impl Send for List {}
// SAFETY: As above; it is not changed.
unsafe impl Sync for List {}

impl List {
    /// All that page `index` is in the midst of. May sleep. Fails with `ENOMEM`; `EFAULT` when there
    /// is no such page.
    fn around(pieces: &[Piece], index: usize) -> Result<Arc<Self>> {
        let at = find(pieces, index).map_err(|_| EFAULT)?;
        let (before, rest) = pieces.split_at_checked(at).ok_or(EFAULT)?;
        let mut start = rest.first().ok_or(EFAULT)?.first;
        let mut first = at;
        for piece in before.iter().rev() {
            if piece.first + piece.pages != start {
                break;
            }
            start = piece.first;
            first -= 1;
        }
        // INVARIANT: Nothing.
        let mut list = Self {
            start: start * PAGE_SIZE,
            len: 0,
            starts: KVVec::new(),
            bvecs: KVVec::new(),
        };
        for piece in pieces.get(first..).unwrap_or(&[]) {
            if piece.first * PAGE_SIZE != list.start + list.len {
                break;
            }
            list.push(piece)?;
        }
        Ok(Arc::new(list, LISTS)?)
    }

    /// Adds a piece that follows. Fails with `ENOMEM`.
    fn push(&mut self, piece: &Piece) -> Result {
        // SAFETY: A folio has a first page.
        let page = unsafe { bindings::nvfs_helper_folio_page(piece.folio.raw.as_ptr(), 0) };
        let bytes = piece.pages * PAGE_SIZE;
        self.starts.reserve(1, LISTS)?;
        self.bvecs.push(
            bindings::bio_vec {
                bv_page: page,
                bv_len: u32::try_from(bytes).map_err(|_| ENOMEM)?,
                bv_offset: 0,
            },
            LISTS,
        )?;
        // INVARIANT: The piece holds a reference on the folio, and here is another one.
        //
        // SAFETY: As above.
        unsafe { bindings::nvfs_helper_get_page(page) };
        self.starts.push(self.len, LISTS)?;
        // INVARIANT: Both lists have one more, and the sum is right.
        self.len += bytes;
        Ok(())
    }

    /// The `len` bytes from byte `at` of the shadow memory on, if all are here.
    fn lend(self: &Arc<Self>, at: usize, len: usize) -> Option<Lent> {
        let offset = at.checked_sub(self.start)?;
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let (first, skip) = match self.bvecs.len() {
            1 => (0, offset),
            _ => locate(&self.starts, self.len, offset)?,
        };
        // INVARIANT: `locate` gives a skip that is inside that piece, and behind it there are `len`
        // bytes to the end.
        Some(Lent {
            list: self.clone(),
            first,
            skip,
            len,
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        for bvec in &self.bvecs {
            // SAFETY: By the type invariant.
            unsafe { bindings::nvfs_helper_put_page(bvec.bv_page) }
        }
    }
}

/// Shadow memory that a transfer uses. Its pages stay while this lives, whoever unmaps them.
///
/// # Invariants
///
/// From the piece with index `first` on, without the first `skip` bytes of it, the list has `len`
/// bytes; that piece has more than `skip`.
pub struct Lent {
    list: Arc<List>,
    first: usize,
    skip: usize,
    len: usize,
}

impl Lent {
    /// In bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// An iterator over it, which is valid while it lives.
    pub(crate) fn iterate(&self, write: bool, iter: &mut MaybeUninit<bindings::iov_iter>) {
        let pieces = self.list.bvecs.get(self.first..).unwrap_or(&[]);
        // SAFETY: By the type invariants.
        unsafe {
            bindings::iov_iter_bvec(
                iter.as_mut_ptr(),
                c_uint::from(write),
                pieces.as_ptr(),
                pieces.len(),
                self.len,
            );
            (*iter.as_mut_ptr()).iov_offset = self.skip;
        }
    }
}

/// The place in `pieces` of the one with page `index`; if there is none, where it would be.
fn find(pieces: &[Piece], index: usize) -> Result<usize, usize> {
    pieces.binary_search_by(|piece| {
        if piece.first > index {
            core::cmp::Ordering::Greater
        } else if index - piece.first >= piece.pages {
            core::cmp::Ordering::Less
        } else {
            core::cmp::Ordering::Equal
        }
    })
}

impl Pages {
    /// `len` pages.
    pub fn new(len: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            len,
            made <- new_mutex!(Made {
                pieces: KVec::new(),
                list: None,
            }),
        })
    }

    /// The place in `pieces` of the one with page `index`, which is made, and charged to `mm`, if it
    /// is not there. May sleep. Fails with `ENOMEM`.
    fn find_or_make<T: Send + Sync + 'static>(
        &self,
        pieces: &mut KVec<Piece>,
        space: &'static Space<T>,
        owner: &Reaped<T>,
        mm: Option<&MmWithUser>,
        index: usize,
    ) -> Result<usize> {
        let at = match find(pieces, index) {
            Ok(at) => return Ok(at),
            Err(at) => at,
        };
        pieces.reserve(1, LISTS)?;
        let end = pieces.get(at).map_or(self.len, |next| next.first);
        let start = at
            .checked_sub(1)
            .and_then(|before| pieces.get(before))
            .map_or(0, |before| before.first + before.pages);
        let piece = Piece::new(space, owner, mm, index, start..end)?;
        pieces
            .insert_within_capacity(at, piece)
            .map_err(|_| ENOMEM)?;
        Ok(at)
    }

    /// Whether these pages are a part of `owner`, and go when it goes.
    fn are_part_of<T>(&self, owner: &Reaped<T>) -> bool {
        let (part, whole) = (core::ptr::from_ref(self), core::ptr::from_ref(owner));
        part.addr().wrapping_sub(whole.addr()) < size_of::<Reaped<T>>()
    }

    /// The `len` bytes from byte `at` on, for a transfer; `owner` is the object that these pages are a
    /// part of. May sleep. Costs the logarithm of the number of pieces, but for the first time.
    ///
    /// Errors: `EFAULT` past the end or for another owner, `ENOMEM`.
    pub fn lend<T: Send + Sync + 'static>(
        &self,
        space: &'static Space<T>,
        owner: &Reaped<T>,
        at: usize,
        len: usize,
    ) -> Result<Lent> {
        let end = at.checked_add(len).ok_or(EFAULT)?;
        if end > self.len * PAGE_SIZE || !self.are_part_of(owner) {
            return Err(EFAULT);
        }
        let mut made = self.made.lock();
        let listed = made.list.as_ref().and_then(|list| list.lend(at, len));
        if let Some(lent) = listed {
            return Ok(lent);
        }
        let current = current!();
        let mut index = at / PAGE_SIZE;
        while index * PAGE_SIZE < end {
            let place = self.find_or_make(&mut made.pieces, space, owner, current.mm(), index)?;
            let piece = made.pieces.get(place).ok_or(EFAULT)?;
            index = piece.first + piece.pages;
        }
        let list = List::around(&made.pieces, at / PAGE_SIZE)?;
        let lent = list.lend(at, len).ok_or(EFAULT);
        made.list = Some(list);
        lent
    }

    /// Handles a fault at page `index` of a mapping that shows these pages from its start. `owner` is
    /// the object that these pages are a part of. May sleep.
    ///
    /// Errors: `EFAULT` past the end or for another owner, `ENOMEM`.
    pub fn fault<T: Send + Sync + 'static>(
        &self,
        space: &'static Space<T>,
        owner: &Reaped<T>,
        vma: Faulting<'_>,
        index: usize,
    ) -> Result<Fault> {
        let vma = vma.vma();
        if index >= self.len || !self.are_part_of(owner) {
            return Err(EFAULT);
        }
        let mut made = self.made.lock();
        let at = self.find_or_make(&mut made.pieces, space, owner, Some(vma.mm()), index)?;
        let piece = made.pieces.get(at).ok_or(EFAULT)?;
        let folio = piece.folio.raw.as_ptr();
        // SAFETY: The folio is ours; the VMA is locked, was made to show single pages, and the kernel
        // checks that the folio's place is inside.
        let inserted = unsafe {
            bindings::nvfs_helper_shadow_insert(
                vma.as_ptr(),
                vma.start() + piece.first * PAGE_SIZE,
                folio,
            )
        };
        if inserted == 0 {
            return Ok(Fault::Done);
        }
        // Some of them are shown already: then this one alone.
        //
        // SAFETY: The folio has that many pages.
        let page = unsafe { bindings::nvfs_helper_folio_page(folio, index - piece.first) };
        let page = NonNull::new(page).ok_or(EFAULT)?;
        // SAFETY: The piece holds a reference on the folio.
        unsafe { bindings::nvfs_helper_get_page(page.as_ptr()) };
        // INVARIANT: Just taken.
        Ok(Fault::Page(SharedPage(page)))
    }

    /// Whether the `len` bytes from byte `at` on are all zero. What was never touched is. The
    /// process may change them meanwhile. May sleep.
    pub fn is_zero(&self, at: usize, len: usize) -> bool {
        let wanted = at..at.saturating_add(len);
        self.made.lock().pieces.iter().all(|piece| {
            let start = piece.first * PAGE_SIZE;
            let from = wanted.start.max(start);
            let to = wanted.end.min(start + piece.pages * PAGE_SIZE);
            from >= to || piece.folio.is_zero(from - start, to - from)
        })
    }
}

impl Piece {
    /// The largest folio around page `index`, inside `room`, that is aligned and can be had. It is
    /// charged to `mm`, if there is one.
    fn new<T: Send + Sync + 'static>(
        space: &'static Space<T>,
        owner: &Reaped<T>,
        mm: Option<&MmWithUser>,
        index: usize,
        room: core::ops::Range<usize>,
    ) -> Result<Self> {
        let mark = space.mark.load(Ordering::Acquire);
        if mark.is_null() {
            return Err(EFAULT);
        }
        let mm = mm.map_or(null_mut(), |mm| mm.as_raw());
        for order in (0..=MAX_ORDER).rev() {
            let pages = 1 << order;
            let first = index & !(pages - 1);
            if first < room.start || room.end - first < pages {
                continue;
            }
            // SAFETY: `mm` is null or borrowed. The mark is live, as there is an owner; the owner
            // outlives the mark on the folio, which `Folio::drop` takes away.
            let folio = unsafe {
                bindings::nvfs_helper_shadow_alloc(
                    order as c_uint,
                    mm,
                    mark,
                    core::ptr::from_ref(owner).cast_mut().cast(),
                    first,
                )
            };
            if let Some(raw) = NonNull::new(folio) {
                space.folios.fetch_add(1, Ordering::Relaxed);
                // INVARIANT: Just made.
                let folio = Folio {
                    raw,
                    count: &space.folios,
                };
                return Ok(Self {
                    first,
                    pages,
                    folio,
                });
            }
        }
        Err(ENOMEM)
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(nvfs_shadow)]
mod tests {
    use super::*;
    use crate::reaper::Reaper;
    use kernel::page::Page;

    struct Owner;

    static SPACE: Space<Owner> = Space::new();
    static OTHER: Space<Owner> = Space::new();

    /// Page `n` of a piece.
    fn page(piece: &Piece, n: usize) -> *const bindings::page {
        // SAFETY: Only asked for pages of the folio.
        unsafe { bindings::nvfs_helper_folio_page(piece.folio.raw.as_ptr(), n) }
    }

    fn find(page: *const bindings::page) -> Option<Place<Owner>> {
        // SAFETY: Only asked for pages that are held.
        unsafe { SPACE.find(page) }
    }

    #[test]
    fn each_page_of_a_folio_tells_its_owner_and_place() -> Result {
        let _opened = SPACE.open()?;
        assert!(SPACE.open().is_err());
        let reaper = Reaper::new(c"kunit")?;
        let owner = Reaped::new(&reaper.handle(), Owner)?;
        let piece = Piece::new(&SPACE, &owner, None, 37, 16..64)?;
        assert!(piece.pages.is_power_of_two() && piece.first % piece.pages == 0);
        assert!(piece.first >= 16 && piece.first <= 37 && 37 - piece.first < piece.pages);
        assert!(!SPACE.is_empty() && OTHER.is_empty());
        for n in 0..piece.pages {
            let place = find(page(&piece, n)).ok_or(EINVAL)?;
            assert!(core::ptr::eq(&*place.owner, &*owner));
            assert_eq!(place.index, piece.first + n);
            assert_eq!(place.pages, piece.pages - n);
        }
        assert!(piece.folio.is_zero(0, piece.pages * PAGE_SIZE));
        drop(piece);
        assert!(SPACE.is_empty());
        drop(owner);
        drop(reaper);
        Ok(())
    }

    #[test]
    fn no_other_page_has_an_owner() -> Result {
        let _opened = SPACE.open()?;
        let _other = OTHER.open()?;
        let reaper = Reaper::new(c"kunit")?;
        let owner = Reaped::new(&reaper.handle(), Owner)?;
        let plain = Page::alloc_page(GFP_KERNEL)?;
        assert!(find(plain.as_ptr().cast()).is_none());
        // SAFETY: It is held.
        assert!(!unsafe { SPACE.contains(plain.as_ptr().cast()) });
        let piece = Piece::new(&OTHER, &owner, None, 0, 0..16)?;
        for n in 0..piece.pages {
            assert!(find(page(&piece, n)).is_none());
        }
        drop(piece);
        drop(owner);
        drop(reaper);
        Ok(())
    }

    #[test]
    fn a_page_that_outlives_its_owner_is_plain() -> Result {
        let _opened = SPACE.open()?;
        let reaper = Reaper::new(c"kunit")?;
        let owner = Reaped::new(&reaper.handle(), Owner)?;
        let piece = Piece::new(&SPACE, &owner, None, 3, 0..4)?;
        let last = page(&piece, piece.pages - 1).cast_mut();
        // SAFETY: The piece holds the folio.
        unsafe { bindings::nvfs_helper_get_page(last) };
        // INVARIANT: Just taken.
        let held = NonNull::new(last).map(SharedPage).ok_or(EINVAL)?;
        assert!(find(last).is_some());
        drop(piece);
        assert!(find(last).is_none());
        drop(held);
        drop(owner);
        drop(reaper);
        Ok(())
    }
}
