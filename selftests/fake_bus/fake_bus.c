// SPDX-License-Identifier: GPL-2.0
/*
 * A PCI domain that goes as that of a volume management device or of a hypervisor does: what the
 * functions' bus needs is freed with it, whoever still has references on them. It has a GPU and an
 * NVMe drive, as far as they can be told from their configuration space; no driver is bound.
 *
 * Loading it makes and removes the domain `rounds` times.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#ifndef CONFIG_X86
#error "struct pci_sysdata is x86's"
#endif

static unsigned int rounds = 100;
module_param(rounds, uint, 0444);

static unsigned int pause_ms = 10;
module_param(pause_ms, uint, 0444);
MODULE_PARM_DESC(pause_ms, "how long a read of the link's status takes");

#define DOMAIN	0x1cafe

/* Where nothing is; 64-bit, prefetchable. */
#define BAR_START	0x7ffe00000000ULL
#define BAR_SIZE	SZ_2M

#define CAP_EXPRESS	0x40

enum { DRIVE, GPU, FUNCTIONS };

/* The functions are the devices 0 and 1 of the bus. */
struct fake_bus {
	struct pci_sysdata sysdata;
	struct resource numbers, window;
	bool slow;
	u32 space[FUNCTIONS][PCI_CFG_SPACE_SIZE / 4];
};

/* Whoever comes here too late has memory that was freed. */
static struct fake_bus *fake_of(struct pci_bus *bus)
{
	return container_of((struct pci_sysdata *)bus->sysdata, struct fake_bus, sysdata);
}

static u32 *fake_word(struct pci_bus *bus, unsigned int devfn, int where)
{
	struct fake_bus *fake = fake_of(bus);

	if (bus->number || PCI_FUNC(devfn) || PCI_SLOT(devfn) >= FUNCTIONS ||
	    where >= PCI_CFG_SPACE_SIZE)
		return NULL;
	return &fake->space[PCI_SLOT(devfn)][where / 4];
}

static int fake_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	u32 *word;

	if (where == CAP_EXPRESS + PCI_EXP_LNKSTA && READ_ONCE(fake_of(bus)->slow))
		msleep(pause_ms);
	word = fake_word(bus, devfn, where);
	if (!word) {
		PCI_SET_ERROR_RESPONSE(value);
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	*value = *word >> (where % 4 * 8) & GENMASK(size * 8 - 1, 0);
	return PCIBIOS_SUCCESSFUL;
}

/* Only the BAR keeps what is written, but for the bits that tell its size and kind. */
static int fake_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	const u32 fixed = BAR_SIZE - 1;
	u32 *word = fake_word(bus, devfn, where);

	if (!word)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (size == 4 && where == PCI_BASE_ADDRESS_0)
		*word = (value & ~fixed) | (*word & fixed);
	else if (size == 4 && where == PCI_BASE_ADDRESS_1)
		*word = value;
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops fake_ops = {
	.read = fake_read,
	.write = fake_write,
};

static void fake_function(u32 *space, u32 class, u16 vendor, u16 device, u64 bar)
{
	space[PCI_VENDOR_ID / 4] = device << 16 | vendor;
	space[PCI_COMMAND / 4] = PCI_STATUS_CAP_LIST << 16 | PCI_COMMAND_MEMORY;
	space[PCI_CLASS_REVISION / 4] = class << 8;
	space[PCI_BASE_ADDRESS_0 / 4] = lower_32_bits(bar) | PCI_BASE_ADDRESS_MEM_TYPE_64 |
					PCI_BASE_ADDRESS_MEM_PREFETCH;
	space[PCI_BASE_ADDRESS_1 / 4] = upper_32_bits(bar);
	space[PCI_CAPABILITY_LIST / 4] = CAP_EXPRESS;
	space[CAP_EXPRESS / 4] = (2 | PCI_EXP_TYPE_ENDPOINT << 4) << 16 | PCI_CAP_ID_EXP;
	/* Four lanes of generation 3. */
	space[(CAP_EXPRESS + PCI_EXP_LNKCTL) / 4] = 0x43 << 16;
}

static struct pci_bus *fake_add(struct fake_bus *fake)
{
	LIST_HEAD(resources);
	struct pci_bus *bus;

	fake->sysdata.domain = DOMAIN;
	fake->sysdata.node = NUMA_NO_NODE;
	fake->numbers = (struct resource) { .name = "fake_bus", .flags = IORESOURCE_BUS };
	fake->window = (struct resource) {
		.name = "fake_bus",
		.start = BAR_START,
		.end = BAR_START + FUNCTIONS * BAR_SIZE - 1,
		.flags = IORESOURCE_MEM | IORESOURCE_MEM_64 | IORESOURCE_PREFETCH,
	};
	fake_function(fake->space[DRIVE], PCI_CLASS_STORAGE_EXPRESS, 0x1af4, 0xcafe,
		      BAR_START + BAR_SIZE);
	fake_function(fake->space[GPU], PCI_CLASS_DISPLAY_3D << 8, PCI_VENDOR_ID_NVIDIA, 0xcafe,
		      BAR_START);
	pci_add_resource(&resources, &fake->numbers);
	pci_add_resource(&resources, &fake->window);
	bus = pci_create_root_bus(NULL, 0, &fake_ops, &fake->sysdata, &resources);
	if (!bus) {
		pci_free_resource_list(&resources);
		return NULL;
	}
	/* They are on the bus then. Without pci_bus_add_devices() no driver is looked for. */
	pci_scan_child_bus(bus);
	WRITE_ONCE(fake->slow, true);
	return bus;
}

static int fake_round(void)
{
	struct fake_bus *fake = kzalloc(sizeof(*fake), GFP_KERNEL);
	struct pci_host_bridge *bridge;
	struct pci_bus *bus;

	if (!fake)
		return -ENOMEM;
	pci_lock_rescan_remove();
	bus = fake_add(fake);
	pci_unlock_rescan_remove();
	if (bus) {
		msleep(pause_ms * 3);
		bridge = to_pci_host_bridge(bus->bridge);
		pci_lock_rescan_remove();
		pci_stop_root_bus(bus);
		pci_remove_root_bus(bus);
		pci_unlock_rescan_remove();
		/* The reference that it was made with. */
		pci_free_host_bridge(bridge);
	}
	kfree(fake);
	return bus ? 0 : -ENXIO;
}

static int __init fake_init(void)
{
	unsigned int round;
	int error = 0;

	for (round = 0; round < rounds && !error; round++)
		error = fake_round();
	return error;
}
module_init(fake_init);

static void __exit fake_exit(void)
{
}
module_exit(fake_exit);

MODULE_DESCRIPTION("PCI functions that come and go with their host bridge");
MODULE_LICENSE("GPL");
