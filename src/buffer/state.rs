// SPDX-License-Identifier: GPL-2.0

//! The life of a buffer as a word, and every change of it. Pure: the owner makes the changes
//! atomic, by compare and exchange.
//!
//! ```text
//!  FREE → MAPPING → READY ⇄ BUSY        CLOSED: the mapping is gone (munmap, exit)
//!    ↑       ↓         ↘     ↓          REVOKED: the GPU memory is going away
//!    └───────┘            DEAD          both stay set for ever
//! ```
//!
//! Contract section 11, with fewer states: a buffer that is closed or revoked while it is busy
//! dies at the end of the transfer.
//!
//! Beside the phase, the word counts the segments that storage drivers have for DMA. They are
//! taken during a transfer, and may be given back long after it.

/// The state of a buffer: a phase, what came meanwhile, and a count of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u32);

const FREE: u32 = 0;
const MAPPING: u32 = 1;
const READY: u32 = 2;
const BUSY: u32 = 3;
const DEAD: u32 = 4;
const PHASE: u32 = 0xf;
const CLOSED: u32 = 0x10;
const REVOKED: u32 = 0x20;
const SEGMENT: u32 = 0x100;

/// Why a change is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// MAP was done or is under way, or it never was.
    Phase,
    /// A transfer is under way, or the buffer is dead.
    Busy,
}

impl Word {
    /// A buffer that is not mapped to a GPU.
    pub(crate) const NEW: Word = Word(FREE);

    /// From and to an atomic.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// From and to an atomic.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    const fn phase(self) -> u32 {
        self.0 & PHASE
    }

    const fn with_phase(self, phase: u32) -> Self {
        Self(self.0 & !PHASE | phase)
    }

    /// The buffer was closed or revoked.
    const fn is_ending(self) -> bool {
        self.0 & (CLOSED | REVOKED) != 0
    }

    const fn has_segments(self) -> bool {
        self.0 >= SEGMENT
    }

    /// The GPU memory is going away, or gone.
    pub(crate) const fn is_revoked(self) -> bool {
        self.0 & REVOKED != 0
    }

    /// A transfer is under way.
    pub(crate) const fn is_busy(self) -> bool {
        self.phase() == BUSY
    }

    /// Nothing may reach the GPU memory any more: a revoked buffer without transfer or segment.
    pub(crate) const fn is_drained(self) -> bool {
        self.is_revoked() && !self.is_busy() && !self.has_segments()
    }

    /// A storage driver gets a segment of the transfer under way.
    pub(crate) const fn begin_segment(self) -> Result<Self, Refused> {
        if !self.is_busy() {
            return Err(Refused::Phase);
        }
        match self.0.checked_add(SEGMENT) {
            Some(bits) => Ok(Self(bits)),
            None => Err(Refused::Busy),
        }
    }

    /// A storage driver gives a segment back. Refused when none is out.
    pub(crate) const fn end_segment(self) -> Result<Self, Refused> {
        match self.0.checked_sub(SEGMENT) {
            Some(bits) => Ok(Self(bits)),
            None => Err(Refused::Phase),
        }
    }

    /// MAP begins: once, and only on a live mapping.
    pub(crate) const fn begin_map(self) -> Result<Self, Refused> {
        if self.0 == FREE {
            Ok(self.with_phase(MAPPING))
        } else {
            Err(Refused::Phase)
        }
    }

    /// MAP failed and has undone all: it may be tried again.
    pub(crate) const fn fail_map(self) -> Self {
        Self(self.with_phase(FREE).0 & !REVOKED)
    }

    /// MAP is done: ready, unless the buffer was closed or revoked meanwhile.
    pub(crate) const fn end_map(self) -> Self {
        if self.is_ending() {
            self.with_phase(DEAD)
        } else {
            self.with_phase(READY)
        }
    }

    /// A transfer begins: one at a time.
    pub(crate) const fn begin_io(self) -> Result<Self, Refused> {
        match self.phase() {
            READY if !self.is_ending() => Ok(self.with_phase(BUSY)),
            FREE | MAPPING => Err(Refused::Phase),
            _ => Err(Refused::Busy),
        }
    }

    /// Whether the transfer under way may go on with its next part.
    pub(crate) const fn may_continue(self) -> bool {
        self.phase() == BUSY && !self.is_ending()
    }

    /// The transfer is over.
    pub(crate) const fn end_io(self) -> Self {
        if self.is_ending() {
            self.with_phase(DEAD)
        } else {
            self.with_phase(READY)
        }
    }

    /// The mapping is gone.
    pub(crate) const fn close(self) -> Self {
        let closed = Self(self.0 | CLOSED);
        match self.phase() {
            READY => closed.with_phase(DEAD),
            _ => closed,
        }
    }

    /// The GPU memory is going away, as soon as the word [is drained](Self::is_drained).
    pub(crate) const fn revoke(self) -> Self {
        let revoked = Self(self.0 | REVOKED);
        match self.phase() {
            READY => revoked.with_phase(DEAD),
            _ => revoked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Word {
        Word::NEW.begin_map().unwrap().end_map()
    }

    #[test]
    fn one_map_and_one_transfer_at_a_time() {
        assert_eq!(ready().begin_map(), Err(Refused::Phase));
        let busy = ready().begin_io().unwrap();
        assert_eq!(busy.begin_io(), Err(Refused::Busy));
        assert!(busy.may_continue());
        assert_eq!(busy.end_io(), ready());
    }

    #[test]
    fn a_failed_map_may_be_tried_again() {
        let failed = Word::NEW.begin_map().unwrap().revoke().fail_map();
        assert_eq!(failed, Word::NEW);
    }

    #[test]
    fn no_transfer_before_map() {
        assert_eq!(Word::NEW.begin_io(), Err(Refused::Phase));
        assert_eq!(
            Word::NEW.begin_map().unwrap().begin_io(),
            Err(Refused::Phase)
        );
    }

    #[test]
    fn ending_while_busy_ends_after_the_transfer() {
        for end in [Word::close, Word::revoke] {
            let busy = end(ready().begin_io().unwrap());
            assert!(busy.is_busy() && !busy.may_continue());
            let dead = busy.end_io();
            assert!(!dead.is_busy());
            assert_eq!(dead.begin_io(), Err(Refused::Busy));
            assert_eq!(end(ready()).begin_io(), Err(Refused::Busy));
        }
    }

    #[test]
    fn segments_outlive_the_transfer() {
        let busy = ready().begin_io().unwrap();
        assert_eq!(ready().begin_segment(), Err(Refused::Phase));
        assert_eq!(busy.end_segment(), Err(Refused::Phase));
        let word = busy.begin_segment().unwrap().begin_segment().unwrap();
        let word = word.end_io();
        assert_eq!(word.begin_segment(), Err(Refused::Phase));
        assert!(word.begin_io().is_ok());
        let word = word.revoke();
        assert!(!word.is_drained());
        let word = word.end_segment().unwrap();
        assert!(!word.is_drained());
        assert!(word.end_segment().unwrap().is_drained());
    }

    #[test]
    fn revoked_while_mapping_is_never_ready() {
        let word = Word::NEW.begin_map().unwrap().revoke().end_map();
        assert_eq!(word.begin_io(), Err(Refused::Busy));
    }
}
