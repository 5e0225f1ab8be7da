// SPDX-License-Identifier: GPL-2.0
/*
 * rig SERIAL...: waits until the drives with these serial numbers are there, and prints the rig as
 * shell assignments: NVME_<SERIAL> the block device and PCI_<SERIAL> the PCI address of each drive,
 * PCI_GPU0, PCI_GPU1 the PCI addresses of the two BARs.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define WAIT_MS	60000

/* The first word of a file of sysfs; "" when there is none. */
static void read_word(const char *path, char *word, size_t size)
{
	FILE *f = fopen(path, "r");

	*word = '\0';
	if (!f)
		return;
	if (fgets(word, size, f))
		word[strcspn(word, " \n")] = '\0';
	fclose(f);
}

static bool is_drive(const struct dirent *entry, const char *serial)
{
	char path[512], found[64];

	snprintf(path, sizeof(path), "/sys/class/nvme/%s/serial", entry->d_name);
	read_word(path, found, sizeof(found));
	if (strcmp(found, serial))
		return false;
	snprintf(path, sizeof(path), "/dev/%sn1", entry->d_name);
	return !access(path, F_OK);
}

static void print_drive(const char *serial, const char *controller)
{
	char path[512], address[64], name[64];
	size_t i;

	for (i = 0; serial[i] && i < sizeof(name) - 1; i++)
		name[i] = toupper((unsigned char)serial[i]);
	name[i] = '\0';
	snprintf(path, sizeof(path), "/sys/class/nvme/%s/address", controller);
	read_word(path, address, sizeof(address));
	printf("export NVME_%s=/dev/%sn1 PCI_%s=%s\n", name, controller, name, address);
}

static bool find_drive(const char *serial)
{
	DIR *dir = opendir("/sys/class/nvme");
	struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir))) {
		found = is_drive(entry, serial);
		if (found)
			print_drive(serial, entry->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* devtmpfs tells of each new node, so there is no need to ask again and again. */
static bool wait_for_drive(int watch, const char *serial)
{
	struct pollfd pollfd = { .fd = watch, .events = POLLIN };
	char events[4096];

	while (!find_drive(serial)) {
		if (poll(&pollfd, 1, WAIT_MS) != 1 || read(watch, events, sizeof(events)) <= 0)
			return false;
	}
	return true;
}

static bool is_bar(const char *address)
{
	char path[512], vendor[16], device[16];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", address);
	read_word(path, vendor, sizeof(vendor));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/device", address);
	read_word(path, device, sizeof(device));
	return !strcmp(vendor, "0x1af4") && !strcmp(device, "0x1110");
}

static void print_gpus(void)
{
	struct dirent **entries;
	int i, gpu = 0, n = scandir("/sys/bus/pci/devices", &entries, NULL, alphasort);

	for (i = 0; i < n; i++) {
		if (is_bar(entries[i]->d_name))
			printf("export PCI_GPU%d=%s\n", gpu++, entries[i]->d_name);
	}
}

int main(int argc, char **argv)
{
	int i, watch = inotify_init1(IN_CLOEXEC);

	if (watch < 0 || inotify_add_watch(watch, "/dev", IN_CREATE) < 0) {
		perror("rig: inotify");
		return 1;
	}
	for (i = 1; i < argc; i++) {
		if (!wait_for_drive(watch, argv[i])) {
			fprintf(stderr, "rig: no drive %s\n", argv[i]);
			return 1;
		}
	}
	print_gpus();
	return 0;
}
