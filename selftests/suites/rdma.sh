# SPDX-License-Identifier: GPL-2.0
# The RDMA record of a buffer.
load_modules
tap rdma
check "2.6: unload" unload_modules
finish
