// SPDX-License-Identifier: GPL-2.0

use crate::{
    error::Result,
    prelude::Flags, //
};
use std::collections::BTreeMap;

pub struct RBTree<K, V>(BTreeMap<K, V>);

pub struct RBTreeNodeReservation;

pub struct RBTreeNode<K, V>(K, V);

impl RBTreeNodeReservation {
    pub fn new(_flags: Flags) -> Result<Self> {
        Ok(Self)
    }

    pub fn into_node<K, V>(self, key: K, value: V) -> RBTreeNode<K, V> {
        RBTreeNode(key, value)
    }
}

impl<K: Ord, V> RBTree<K, V> {
    pub fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn insert(&mut self, node: RBTreeNode<K, V>) {
        self.0.insert(node.0, node.1);
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub fn remove_node(&mut self, key: &K) -> Option<RBTreeNode<K, V>> {
        let (key, value) = self.0.remove_entry(key)?;
        Some(RBTreeNode(key, value))
    }
}
