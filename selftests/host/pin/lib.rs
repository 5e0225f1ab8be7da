// SPDX-License-Identifier: GPL-2.0

//! Stands in for the kernel's `#[pin_data]`: takes `#[pin]` off the fields.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// The type as it is, without `#[pin]`.
#[proc_macro_attribute]
pub fn pin_data(_args: TokenStream, item: TokenStream) -> TokenStream {
    strip(item)
}

fn strip(tokens: TokenStream) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let TokenTree::Group(group) = token else {
            out.push(token);
            continue;
        };
        if group.delimiter() == Delimiter::Bracket && group.stream().to_string() == "pin" {
            // And the `#` before it.
            out.pop();
        } else {
            out.push(Group::new(group.delimiter(), strip(group.stream())).into());
        }
    }
    out.into_iter().collect()
}
