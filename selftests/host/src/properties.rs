// SPDX-License-Identifier: GPL-2.0

//! Properties over all values that a user can pass.

use crate::{
    extents::{joined, locate, Extent},
    geometry::{read_len, FileRange, GpuRange, BLOCK, GPU_PAGE},
    state::Word,
};
use proptest::prelude::*;

/// Numbers near the edges as often as others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..(1u64 << 20),
        (0..(1u64 << 20)).prop_map(|n| u64::MAX - n),
        (0..64u64, 0..16u64).prop_map(|(shift, n)| (1u64 << shift).wrapping_add(n * 512)),
    ]
}

proptest! {
    #[test]
    fn a_gpu_range_is_covered_by_its_pages(va in number(), size in number(), shadow in number()) {
        let Some(range) = GpuRange::new(va, size as i64, shadow) else { return Ok(()) };
        let start = range.pinned_start();
        let len = range.pinned_len();
        prop_assert!(start % GPU_PAGE == 0 && len % GPU_PAGE == 0);
        prop_assert!(start <= va && va - start < GPU_PAGE);
        let end = u128::from(start) + u128::from(len);
        let wanted = u128::from(va) + u128::from(size);
        prop_assert!(end >= wanted && end - wanted < u128::from(GPU_PAGE));
        if size < GPU_PAGE {
            prop_assert!(shadow >= va % GPU_PAGE + size);
        }
    }

    #[test]
    fn a_transfer_stays_in_its_buffer(
        va in number(), size in number(), offset in number(), len in number(),
    ) {
        let Some(range) = GpuRange::new(va, size as i64, u64::MAX) else { return Ok(()) };
        let Some(start) = range.locate(offset, len) else { return Ok(()) };
        prop_assert_eq!(u128::from(start), u128::from(va % GPU_PAGE) + u128::from(offset));
        prop_assert!(start % BLOCK == 0);
        prop_assert!(u128::from(offset) + u128::from(len) <= u128::from(size));
        prop_assert!(start + len <= range.pinned_len());
        if start % GPU_PAGE != 0 {
            prop_assert_eq!(start / GPU_PAGE, (start + len.max(1) - 1) / GPU_PAGE);
        }
    }

    #[test]
    fn a_file_range_never_overflows(offset in number(), size in number()) {
        let sum = u128::from(offset) + u128::from(size);
        let good = offset % BLOCK == 0 && size % BLOCK == 0 && sum <= i64::MAX as u128;
        prop_assert_eq!(FileRange::new(offset as i64, size).is_some(), good);
    }

    #[test]
    fn a_read_never_asks_past_the_last_block(
        pos in number(), want in number(), size in number(), bits in 9..17u32,
    ) {
        let block = 1u64 << bits;
        let ask = read_len(pos, want, size, block);
        prop_assert!(ask <= want);
        if pos >= size {
            prop_assert_eq!(ask, 0);
        } else {
            let left = size - pos;
            prop_assert!(ask >= left.min(want));
            prop_assert!(u128::from(ask) < u128::from(left) + u128::from(block));
        }
    }

    #[test]
    fn every_byte_is_found_again(lens in prop::collection::vec(1..5usize, 1..40), gaps in any::<u64>()) {
        // Pages of one byte; a bit says whether the next one follows in memory.
        let mut phys = 100u64;
        let mut extents = Vec::new();
        for (index, len) in lens.iter().enumerate() {
            extents.push(Extent { phys, len: *len });
            phys += *len as u64 + (gaps >> (index % 64) & 1) * 7;
        }
        let bytes: Vec<u64> = extents
            .iter()
            .flat_map(|e| (0..e.len as u64).map(move |i| e.phys + i))
            .collect();
        let pieces: Vec<Extent> = joined(&extents).map(|e| e.unwrap()).collect();
        let mut starts = Vec::new();
        let mut len = 0;
        for piece in &pieces {
            starts.push(len);
            len += piece.len;
        }
        prop_assert_eq!(len, bytes.len());
        for (offset, phys) in bytes.iter().enumerate() {
            let (index, skip) = locate(&starts, len, offset).unwrap();
            prop_assert_eq!(pieces[index].phys + skip as u64, *phys);
        }
        prop_assert_eq!(locate(&starts, len, len), None);
    }

    /// Whatever comes in whatever order: never two transfers, none on what is ending, and an
    /// ending buffer is dead for good.
    #[test]
    fn the_life_of_a_buffer(events in prop::collection::vec(0..7u8, 0..60)) {
        let mut word = Word::NEW;
        let (mut mapping, mut busy, mut mapped, mut ending) = (false, false, false, false);
        for event in events {
            match event {
                0 => match word.begin_map() {
                    Ok(next) => {
                        prop_assert!(!mapping && !mapped);
                        (word, mapping) = (next, true);
                    }
                    Err(_) => prop_assert!(mapping || mapped || ending),
                },
                1 if mapping => (word, mapping, mapped) = (word.end_map(), false, true),
                2 if mapping => {
                    let closed = word.bits() & 0x10 != 0;
                    (word, mapping, ending) = (word.fail_map(), false, closed);
                }
                3 => match word.begin_io() {
                    Ok(next) => {
                        prop_assert!(mapped && !busy && !ending);
                        (word, busy) = (next, true);
                    }
                    Err(_) => prop_assert!(!mapped || busy || ending),
                },
                4 if busy => (word, busy) = (word.end_io(), false),
                5 => (word, ending) = (word.close(), true),
                6 if mapping || mapped => (word, ending) = (word.revoke(), true),
                _ => (),
            }
            prop_assert_eq!(word.is_busy(), busy);
            prop_assert_eq!(word.may_continue(), busy && !ending);
        }
    }
}
