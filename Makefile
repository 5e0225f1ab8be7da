# SPDX-License-Identifier: GPL-2.0
#
# `modules`, `clean` and `install` are for the kernel in KDIR, by default the running one; all else
# needs nothing but a Debian machine.

KVER ?= $(shell uname -r)
KDIR ?= /lib/modules/$(KVER)/build

modules:
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules

clean:
	$(MAKE) -C $(KDIR) M=$(CURDIR) clean

install: modules
	$(MAKE) -C $(KDIR) M=$(CURDIR) INSTALL_MOD_DIR=extra modules_install

demo check lint fuzz bench:
	selftests/vm/$@

check-long check-extra check-debug check-debug-quick:
	selftests/vm/check --$(@:check-%=%)

bench-quick:
	selftests/vm/bench --quick

.PHONY: modules clean install demo check check-long check-extra check-debug check-debug-quick lint fuzz bench bench-quick
