/* The layouts that kprobe.bpf.c and the agent share. Plain C, fixed-size members, no padding left to the
 * compiler.
 *
 * The key of `owned` and `pending` is the inode number of the socket (u64): the one identity that
 * /proc/PID/fd, net/tcp and the kernel's struct sock agree on, unlike a port, which every network namespace
 * has. The subflows of an MPTCP socket are TCP sockets that share its number, which has 32 bits: each has its
 * sk_hash in the key's upper half. */
#pragma once

#include <linux/types.h>

/* Bounds. A full table is visible as kitty_flow_table_full_total. */
#define KITTY_MAX_OWNED_FLOWS 8192
#define KITTY_MAX_WATCHED_NETNS 1024
/* The LRU is cut into per-CPU free lists of up to 128 entries (kernel/bpf/bpf_lru_list.c, LOCAL_FREE_TARGET),
 * so the agent raises this to 128 x possible CPUs where there are many. */
#define KITTY_MIN_PENDING_FLOWS 1024

/* Upper bounds of the RTT histogram, microseconds; one more bucket is +Inf. A 1-2-5 series, so that a person
 * reads it. */
#define KITTY_RTT_BOUNDS_US                                                                          \
  10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, \
      2000000, 5000000
#define KITTY_RTT_BOUND_COUNT 18
#define KITTY_RTT_BUCKETS (KITTY_RTT_BOUND_COUNT + 1)

/* A sample over an hour is a defect of ours, not a round trip; it is dropped and counted. */
#define KITTY_MAX_RTT_US 3600000000LL

/* Which of struct kitty_counters' members this kernel has: a missing field costs its metric only. */
enum kitty_have {
  KITTY_HAVE_SEGS_OUT = 1,
  KITTY_HAVE_DATA_SEGS_OUT = 2,
  KITTY_HAVE_BYTES_SENT = 4,
  KITTY_HAVE_BYTES_ACKED = 8,
  KITTY_HAVE_TOTAL_RETRANS = 16,
  KITTY_HAVE_BUSY = 32,
  KITTY_HAVE_BYTES_RECEIVED = 64,
};

/* Of kitty_flow::rack_mstamp: what has been sampled before is not known. */
#define KITTY_RACK_UNKNOWN (~0ULL)

/* struct tcp_sock's own counters as of `us`; they count from the socket's birth. The u32 ones wrap. */
struct kitty_counters {
  __u64 us;             /* CLOCK_MONOTONIC of this snapshot, microseconds; 0: none yet */
  __u64 bytes_sent;     /* data bytes, retransmitted ones included (RFC 4898 tcpEStatsPerfHCDataOctetsOut) */
  __u64 bytes_acked;    /* RFC 4898 tcpEStatsAppHCThruOctetsAcked */
  __u64 bytes_received; /* RFC 4898 tcpEStatsAppHCThruOctetsReceived */
  __u32 segs_out;       /* RFC 4898 tcpEStatsPerfSegsOut */
  __u32 data_segs_out;
  __u32 total_retrans; /* segments retransmitted */
  /* Time with data in flight or queued: the sum of chrono_stat[] and the open interval, as tcpi_busy_time. */
  __u32 busy_jiffies;
  /* Of it, the time in which the receiver's window was closed or too small: as tcpi_rwnd_limited. */
  __u32 rwnd_limited_jiffies;
  __u32 have; /* enum kitty_have */
};

/* One socket's flow. The socket's own lock serialises its updates, so plain adds suffice. */
struct kitty_flow {
  __u32 local[4]; /* network byte order; IPv4 as ::ffff:a.b.c.d */
  __u32 remote[4];
  __u16 local_port; /* host byte order */
  __u16 remote_port;
  __u32 netns;  /* inum of the network namespace */
  __u32 hash;   /* sk_hash, which the kernel computes from namespace, addresses and ports: another value means
                   another   tuple, and resets the entry */
  __u32 resets; /* how often that happened, or the counters began anew on the same tuple */
  __u64 last_us;     /* CLOCK_MONOTONIC of the latest sample, microseconds; 0: none yet */
  __u64 rack_mstamp; /* tcp_probe hook only: the transmit time of the segment last sampled, to tell repeats */
  __u64 rtt_sum_us;
  __u64 buckets[KITTY_RTT_BUCKETS]; /* the count of samples is their sum */
  __u32 tick[2]; /* minimum per tick, by its parity, so that one is complete while the other fills */
  __u32 tick_min_us[2];
  struct kitty_counters counters;
};

/* Where a watched process's time goes (docs/ARCHITECTURE.md, "Where time goes"). Packets that bring news on
 * one of its counted flows are its events; a gap of so long between two of them is a silence. */
#define KITTY_SILENCE_US 20000
/* Events closer than this to the one before are passed over. */
#define KITTY_EVENT_GRAIN_US 1000
#define KITTY_MAX_ACCOUNTS 256
#define KITTY_MAX_TIMED_FLOWS 4096
/* Of an account, the latest: at least 2.5 s of them. */
#define KITTY_SILENCES 128
/* Flows that are remembered to have held one; more are as many as these in equal parts, too. */
#define KITTY_HOLDERS 4

/* Of a counted flow, by its socket's key. User space inserts and removes it; only the programs write it,
 * under the socket's lock. */
struct kitty_timed {
  __u32 account; /* index into `accounts` */
  __u16 peer;    /* user space's number of the remote address within the account */
  __u16 pad;
  __u64 event_us;       /* of the flow's latest event, CLOCK_MONOTONIC; 0: none yet */
  __u64 unread_from_us; /* since when its receive queue has had bytes and the process has read none; 0: it is
                           empty */
  __u64 sending_us;     /* gaps that were no silences, ended by an acknowledgement of the peer */
  __u64 receiving_us;   /* ended by data of the peer */
  __u32 busy_jiffies;   /* the chronographs at that event, as in struct kitty_counters */
  __u32 rwnd_limited_jiffies;
};

enum kitty_event {
  KITTY_EVENT_ACK = 1, /* data was acknowledged */
  KITTY_EVENT_DATA = 2 /* new data came */
};

struct kitty_silence {
  __u64 begin_us;
  __u64 end_us;
  __u32 sent_us; /* after `begin_us` the process sent on a flow that had nothing in flight; 0: it did not */
  /* Of it, with bytes unread in a receive queue: of the peer whose data ended it, else of any. */
  __u32 unread_us;
  __u16 peer; /* whose packet ended it */
  __u8 event; /* enum kitty_event: what that brought */
  __u8 holder_count;
  /* Flows that had data in flight or queued all the time. */
  struct {
    __u16 peer;
    __u16 rwnd_limited; /* of their busy time since their event before, in 1/1000 */
  } holders[KITTY_HOLDERS];
  __u32 excused; /* 1: something in flight all the time may have waited for a delayed acknowledgement alone */
};

/* Of a watched process. Written by the programs on several CPUs without a lock: two events within nanoseconds
 * may count a gap twice or lose it. */
struct kitty_account {
  __u64 last_us; /* of its latest event, or when the account was opened */
  __u32 last_peer;
  __u32 last_event; /* enum kitty_event; 0: none yet */
  /* Since the latest event: for how long bytes of a peer lay unread that have been read meanwhile. */
  struct {
    __u32 peer;
    __u32 us; /* 0: the place is free */
  } unread[KITTY_HOLDERS];
  __u64 silence_count; /* the n-th, from 0, is in slot n % KITTY_SILENCES */
  struct kitty_silence silences[KITTY_SILENCES];
};

/* .data: written by user space, never by the programs. */
struct kitty_settings {
  __u32 tick;     /* changes with every tick; never 0, so that a zeroed entry is of no tick */
  __u32 jiffy_us; /* what one of the kernel's jiffies lasts */
};

/* An MPTCP socket's subflows beyond these are not listed; the kernel's own path manager makes at most nine
 * (MPTCP_PM_ADDR_MAX of net/mptcp/protocol.h, and the first). */
#define KITTY_MAX_SUBFLOWS 10

/* Of kitty_socket_row::flags. */
enum kitty_row_flag {
  /* Another process opened the socket, or this one before its latest execve(2) or change of credentials. */
  KITTY_ROW_HANDED = 1,
  /* The row stands for subflows of an MPTCP socket that are not listed; only `inode` says something. */
  KITTY_ROW_UNSEEN = 2,
};

/* What list_sockets writes: one row for each TCP socket among the descriptors of the process it visits, one
 * for each subflow of an MPTCP socket, and one for the process's first descriptor whatever that is (inode 0
 * where it is no such socket), so that a process without sockets differs from one that was not found. A
 * socket comes twice where it has two descriptors. */
struct kitty_socket_row {
  __u64 inode;             /* the key of `owned`; 0: no socket */
  __u64 start_boottime_ns; /* of the process: of its thread group's leader */
  __u32 tgid;              /* the process's number in the reader's pid namespace */
  __u32 netns;             /* inum of the network namespace */
  __u32 local[4];          /* network byte order; IPv4 as ::ffff:a.b.c.d */
  __u32 remote[4];
  __u16 local_port; /* host byte order */
  __u16 remote_port;
  __u32 state;          /* enum of include/net/tcp_states.h, as net/tcp prints it */
  __u32 hash;           /* sk_hash: struct kitty_flow's */
  __u32 flags;          /* enum kitty_row_flag */
  __u64 tx_queue_bytes; /* as net/tcp prints it: an unacknowledged SYN or FIN counts one */
  struct kitty_counters counters;
};

/* Programs executed lately: slot n % KITTY_EXEC_SLOTS of the array `exec_log` holds the n-th. A reader that
 * is more than that behind has lost some, and knows it from the count (`execs`). */
#define KITTY_EXEC_SLOTS 128
#define KITTY_EXEC_ENVIRON_BYTES 8192
/* Pid namespaces that a process may be seen from, outermost first; deeper ones are not told. */
#define KITTY_EXEC_LEVELS 4

/* One execve(2), as it was before the program's first instruction: what the program does to its environment
 * later (setproctitle) is not in it. */
struct kitty_exec {
  __u64 number; /* n + 1; 0 while the record is written, another one where the slot has been used again */
  __u64 start_boottime_ns; /* of the process: of its thread group's leader */
  __u64 environ_bytes;     /* of the whole environment */
  __u32 kept_bytes;        /* of them in `environ`; 0 where they could not be read */
  __u32 levels;            /* of `seen_from` that are filled */
  struct {
    __u32 pid_namespace; /* its inode number, as in the link /proc/PID/ns/pid */
    __u32 pid;           /* the process's number there */
  } seen_from[KITTY_EXEC_LEVELS];
  char environ[KITTY_EXEC_ENVIRON_BYTES]; /* NUL-separated, as /proc/PID/environ */
};

/* Index into the per-CPU array `misses`: samples that no owned flow took, in watched namespaces. */
enum kitty_miss {
  KITTY_MISS_PENDING,  /* kept in `pending`, for the process that is yet to be found */
  KITTY_MISS_NO_INODE, /* the socket is not accepted yet, or orphaned */
  KITTY_MISS_FULL,     /* `pending` refused the entry */
  KITTY_MISS_INSANE,   /* beyond KITTY_MAX_RTT_US */
  KITTY_MISS_COUNT,
};
