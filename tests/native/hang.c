// A process that hangs whoever reads of it under /proc, without any privilege: it waits for a file system of
// its own, FUSE over the raw device in a user namespace, that does not answer. What stuck_test.py stands hung
// storage by.
//
//   hang fault DEVICE     a page fault on the file system holds mmap_lock, and a writer queues behind it:
//   environ and
//                         cmdline are waited for
//   hang exec DEVICE      an execve(2) that closes a file of it holds exec_update_lock: environ, on some
//   kernels stat, fd
//                         and ns/net, too
//   hang environ          points its environment at a terabyte that was never touched (prctl(2),
//   PR_SET_MM_MAP) hang listing DEVICE FOLDER   as root: serves FOLDER as an empty directory, whose listing
//   hangs from SIGUSR1 on
//
// Says "ready" and its server's pid (0: none) once it is prepared, hangs when a line comes on standard input,
// and says "hung" a moment before. Killing the server is a storage that comes back; no other signal ends a
// flush.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kDeviceFd = 100, kRequestBytes = 1 << 17, kFileBytes = 1 << 16, kRoot = 1, kFile = 2 };

static void fail(const char* what) {
  perror(what);
  exit(1);
}

// The file system: one directory with one file of zeros, called whatever it is looked up by.

static volatile sig_atomic_t hold_listing;

static void on_signal(int signal) {
  (void)signal;
  hold_listing = 1;
}

static void reply(uint64_t unique, int error, const void* body, size_t size) {
  static char message[kRequestBytes];
  const struct fuse_out_header head = {
      .len = (uint32_t)(sizeof head + size), .error = error, .unique = unique};
  memcpy(message, &head, sizeof head);
  if (size != 0) memcpy(message + sizeof head, body, size);
  if (write(kDeviceFd, message, head.len) < 0 && errno != ENOENT) fail("answer a FUSE request");
}

static struct fuse_attr attributes(uint64_t node) {
  struct fuse_attr attr = {.ino = node, .nlink = 1, .blksize = 4096, .mode = S_IFDIR | 0755};
  if (node != kFile) return attr;
  attr.mode = S_IFREG | 0644;
  attr.size = kFileBytes;
  return attr;
}

// Answers all but what is to hang.
static void serve(int hold_read, int hold_flush) {
  static char request[kRequestBytes], zeros[kFileBytes];
  for (;;) {
    const ssize_t size = read(kDeviceFd, request, sizeof request);
    if (size < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
    if (size < 0) exit(0);  // unmounted
    const struct fuse_in_header* head = (const void*)request;
    const void* body = request + sizeof *head;
    switch (head->opcode) {
      case FUSE_INIT: {
        const struct fuse_init_out out = {
            .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = kFileBytes / 4};
        reply(head->unique, 0, &out, sizeof out);
        break;
      }
      case FUSE_LOOKUP: {
        const struct fuse_entry_out out = {
            .nodeid = kFile, .entry_valid = 1000, .attr_valid = 1000, .attr = attributes(kFile)};
        reply(head->unique, hold_read || hold_flush ? 0 : -ENOENT, &out,
              hold_read || hold_flush ? sizeof out : 0);
        break;
      }
      case FUSE_GETATTR: {
        const struct fuse_attr_out out = {.attr_valid = 1000, .attr = attributes(head->nodeid)};
        reply(head->unique, 0, &out, sizeof out);
        break;
      }
      case FUSE_OPEN:
      case FUSE_OPENDIR: {
        const struct fuse_open_out out = {.fh = 1};
        reply(head->unique, 0, &out, sizeof out);
        break;
      }
      case FUSE_READ: {
        const struct fuse_read_in* in = body;
        if (!hold_read) reply(head->unique, 0, zeros, in->size);
        break;
      }
      case FUSE_READDIR:
        if (!hold_listing) reply(head->unique, 0, NULL, 0);
        break;
      case FUSE_FLUSH:
        if (!hold_flush) reply(head->unique, 0, NULL, 0);
        break;
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        break;  // want no answer
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR:
      case FUSE_ACCESS:
        reply(head->unique, 0, NULL, 0);
        break;
      default:
        reply(head->unique, -ENOSYS, NULL, 0);
    }
  }
}

static void write_file(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) fail(path);
  close(fd);
}

static void enter_namespaces(void) {
  char map[64];
  const unsigned uid = getuid(), gid = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) fail("unshare");
  write_file("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "0 %u 1", uid);
  write_file("/proc/self/uid_map", map);
  snprintf(map, sizeof map, "0 %u 1", gid);
  write_file("/proc/self/gid_map", map);
}

static void mount_device(const char* device, const char* folder, const char* more) {
  char options[128];
  const int fd = open(device, O_RDWR);
  if (fd < 0 || dup2(fd, kDeviceFd) < 0) fail(device);
  close(fd);
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0%s", kDeviceFd, more);
  if (mount("hang", folder, "fuse", MS_NOSUID | MS_NODEV, options) != 0) fail("mount fuse");
}

// A program of its own with an empty environment, so that it is not taken for a watched process.
static pid_t server;

static void start_server(const char* mode) {
  server = fork();
  if (server < 0) fail("fork");
  if (server != 0) {
    close(kDeviceFd);
    return;
  }
  char* const arguments[] = {"hang-server", "serve", (char*)mode, NULL};
  char* const environment[] = {NULL};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execve("/proc/self/exe", arguments, environment);
  fail("execve");
}

static void say(const char* word) {
  printf("%s\n", word);
  fflush(stdout);
}

static void wait_for_word(void) {
  printf("ready %d\n", server);
  fflush(stdout);
  if (getchar() == EOF) exit(0);
  say("hung");
}

// What hangs

static char* page;

// Holds mmap_lock for reading while the page is fetched (access_remote_vm).
static void* fault(void* unused) {
  char byte;
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (memory < 0) fail("/proc/self/mem");
  (void)!pread(memory, &byte, 1, (off_t)(uintptr_t)page);
  return unused;
}

// Wants mmap_lock for writing: readers that come later queue behind.
static void* change_memory(void* unused) {
  sleep(1);
  mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return unused;
}

static void hang_in_fault(int file) {
  pthread_t reader, writer;
  page = mmap(NULL, kFileBytes, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) fail("mmap");
  wait_for_word();
  pthread_create(&reader, NULL, fault, NULL);
  pthread_create(&writer, NULL, change_memory, NULL);
  pthread_join(reader, NULL);
  pthread_join(writer, NULL);
  for (;;) pause();  // readable again
}

static void hang_in_exec(void) {
  extern char** environ;
  char* const arguments[] = {"sleep", "600", NULL};
  wait_for_word();
  execve("/bin/sleep", arguments, environ);
  fail("execve");
}

static void hang_in_environ(void) {
  const uint64_t size = 1ULL << 40;
  char* memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  // The numbers behind the name in /proc/self/stat, counted as proc_pid_stat(5) does.
  unsigned long field[64] = {0};
  char line[4096] = {0};
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, line, sizeof line - 1) <= 0) fail("/proc/self/stat");
  close(fd);
  size_t place = 3;
  for (char* token = strtok(strrchr(line, ')') + 2, " "); token && place < 64; token = strtok(NULL, " "))
    field[place++] = strtoul(token, NULL, 10);
  struct prctl_mm_map map = {.start_code = field[26],
                             .end_code = field[27],
                             .start_data = field[45],
                             .end_data = field[46],
                             .start_brk = field[47],
                             .brk = (uintptr_t)sbrk(0),
                             .start_stack = field[28],
                             .arg_start = field[48],
                             .arg_end = field[49],
                             .env_start = (uintptr_t)memory,
                             .env_end = (uintptr_t)memory + size,
                             .exe_fd = (uint32_t)-1};
  wait_for_word();
  if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) != 0) fail("prctl PR_SET_MM_MAP");
  for (;;) pause();
}

int main(int count, char** given) {
  const char* mode = count > 1 ? given[1] : "";
  if (!strcmp(mode, "serve")) serve(!strcmp(given[2], "fault"), !strcmp(given[2], "exec"));
  if (!strcmp(mode, "environ")) hang_in_environ();
  if (!strcmp(mode, "listing") && count > 3) {
    mount_device(given[2], given[3], ",allow_other");
    signal(SIGUSR1, on_signal);
    say("ready");
    serve(0, 0);
  }
  if (count < 3) return 3;
  enter_namespaces();
  // Over a folder that is there everywhere; nobody else sees it.
  mount_device(given[2], "/tmp", "");
  start_server(mode);
  const int file = open("/tmp/file", O_RDONLY | O_CLOEXEC);
  if (file < 0) fail("/tmp/file");
  if (!strcmp(mode, "fault")) hang_in_fault(file);
  if (!strcmp(mode, "exec")) hang_in_exec();
  return 3;
}
