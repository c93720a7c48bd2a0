// The kernel side: every raw RTT sample, before smoothing, added to its socket's flow entry.
//
// The code runs in softirq, where the current task is somebody else; only the socket says whose sample it is.
// User space decides which sockets are owned by a watched process; foreign traffic cannot take their room.
//
// One sample path for all hooks. `direct` (a constant after inlining) chooses between loads the verifier
// proves through BTF (fentry, tp_btf) and bpf_probe_read_kernel (kprobe, raw tracepoint).

#include "kprobe.h"

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define CORE __attribute__((preserve_access_index))
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define IPPROTO_TCP 6
#define IPPROTO_MPTCP 262
#define TCP_LISTEN 10  // include/net/tcp_states.h

// Helpers: numbers from include/uapi/linux/bpf.h (___BPF_FUNC_MAPPER).
static void* (*map_lookup)(void* map, const void* key) = (void*)BPF_FUNC_map_lookup_elem;
static long (*map_update)(void* map, const void* key, const void* value,
                          __u64 flags) = (void*)BPF_FUNC_map_update_elem;
static long (*probe_read_kernel)(void* to, __u32 size, const void* from) = (void*)BPF_FUNC_probe_read_kernel;
static long (*probe_read_user)(void* to, __u32 size, const void* from) = (void*)BPF_FUNC_probe_read_user;
static __u64 (*ktime_get_ns)(void) = (void*)BPF_FUNC_ktime_get_ns;
static __u64 (*jiffies64)(void) = (void*)BPF_FUNC_jiffies64;
static __u64 (*get_current_task)(void) = (void*)BPF_FUNC_get_current_task;

// The parts of kernel types that are read; offsets come from the running kernel's BTF (CO-RE).
struct ns_common {
  unsigned int inum;
} CORE;
struct net {
  struct ns_common ns;
} CORE;
typedef struct {
  struct net* net;
} possible_net_t;
struct in6_addr {
  union {
    __u32 u6_addr32[4];
  } in6_u;
} CORE;
struct sock_common {
  __u32 skc_daddr;
  __u32 skc_rcv_saddr;
  unsigned int skc_hash;
  __u16 skc_dport;
  __u16 skc_num;
  unsigned short skc_family;
  unsigned char skc_state;
  possible_net_t skc_net;
  struct in6_addr skc_v6_daddr;
  struct in6_addr skc_v6_rcv_saddr;
} CORE;
struct inode {
  unsigned long i_ino;
} CORE;
struct cred;
struct file {
  struct inode* f_inode;
  const struct cred* f_cred;
} CORE;
struct socket {
  struct file* file;
  struct sock* sk;
} CORE;
struct socket_alloc {
  struct socket socket;
  struct inode vfs_inode;
} CORE;
struct sock {
  struct sock_common __sk_common;
  __u16 sk_type;
  __u16 sk_protocol;
  struct socket* sk_socket;
} CORE;
struct list_head {
  struct list_head* next;
} CORE;
struct mptcp_sock {
  __u64 write_seq;
  __u64 snd_nxt;
  struct list_head conn_list;
} CORE;
struct mptcp_subflow_context {
  struct list_head node;
  struct sock* tcp_sock;
} CORE;
struct tcp_rack {
  __u64 mstamp;
  __u32 rtt_us;
} CORE;
struct tcp_skb_cb {
  __u32 seq;
  __u32 end_seq;
  __u32 ack_seq;
} CORE;
struct sk_buff {
  char cb[48];
} CORE;
struct minmax_sample {
  __u32 t;
  __u32 v;
} CORE;
struct minmax {
  struct minmax_sample s[3];
} CORE;
struct tcp_sock {
  __u64 tcp_mstamp;
  __u32 rcv_nxt;
  __u32 copied_seq;
  __u32 snd_nxt;
  __u32 lost_out;
  __u32 retrans_out;
  __u32 packets_out;
  __u64 first_tx_mstamp;
  struct minmax rtt_min;
  __u64 bytes_received;
  __u32 segs_out;
  __u32 data_segs_out;
  __u64 bytes_sent;
  __u64 bytes_acked;
  __u32 total_retrans;
  __u32 snd_una;
  __u32 write_seq;
  __u32 chrono_start;
  __u32 chrono_stat[3];
  __u8 chrono_type : 2;  // a bitfield up to 6.12, a plain u8 later
  struct tcp_rack rack;
} CORE;

struct pid_namespace {
  struct ns_common ns;
} CORE;
struct upid {
  int nr;
  struct pid_namespace* ns;
} CORE;
struct pid {
  unsigned int level;
  struct upid numbers[1];  // one for each namespace the process is seen from, outermost first
} CORE;
struct mm_struct {
  unsigned long env_start;
  unsigned long env_end;
} CORE;
struct task_struct {
  struct mm_struct* mm;
  __u64 start_boottime;
  struct task_struct* group_leader;
  struct pid* thread_pid;
  const struct cred* real_cred;
} CORE;
struct seq_file;
struct bpf_iter_meta {
  struct seq_file* seq;
  __u64 seq_num;
} CORE;

static struct tcp_sock* (*skc_to_tcp_sock)(void* sk) = (void*)BPF_FUNC_skc_to_tcp_sock;
static struct socket* (*sock_from_file)(struct file* file) = (void*)BPF_FUNC_sock_from_file;
static long (*seq_write)(struct seq_file* seq, const void* data, __u32 size) = (void*)BPF_FUNC_seq_write;

#define GET(ptr, field)                                         \
  ({                                                            \
    __typeof__((ptr)->field) value_ = 0;                        \
    if (direct)                                                 \
      value_ = (ptr)->field;                                    \
    else                                                        \
      probe_read_kernel(&value_, sizeof value_, &(ptr)->field); \
    value_;                                                     \
  })

// Kinds of __builtin_preserve_field_info: enum bpf_core_relo_kind, include/uapi/linux/bpf.h.
#define FIELD_BYTE_OFFSET(field) __builtin_preserve_field_info(field, 0)
#define FIELD_BYTE_SIZE(field) __builtin_preserve_field_info(field, 1)
#define FIELD_EXISTS(field) __builtin_preserve_field_info(field, 2)
#define FIELD_LSHIFT(field) __builtin_preserve_field_info(field, 4)
#define FIELD_RSHIFT(field) __builtin_preserve_field_info(field, 5)

#define MAP_UINT(name, value) int(*name)[value]

struct {
  MAP_UINT(type, BPF_MAP_TYPE_HASH);
  MAP_UINT(max_entries, KITTY_MAX_OWNED_FLOWS);
  __u64* key;
  struct kitty_flow* value;
} owned SEC(".maps");

struct {
  MAP_UINT(type, BPF_MAP_TYPE_LRU_HASH);
  MAP_UINT(max_entries, KITTY_MIN_PENDING_FLOWS);
  __u64* key;
  struct kitty_flow* value;
} pending SEC(".maps");

struct {
  MAP_UINT(type, BPF_MAP_TYPE_HASH);
  MAP_UINT(max_entries, KITTY_MAX_WATCHED_NETNS);
  __u32* key;
  __u32* value;
} watched_netns SEC(".maps");

struct {
  MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  MAP_UINT(max_entries, KITTY_MISS_COUNT);
  __u32* key;
  __u64* value;
} misses SEC(".maps");

struct {
  MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
  MAP_UINT(max_entries, KITTY_EXEC_SLOTS);
  __u32* key;
  struct kitty_exec* value;
} exec_log SEC(".maps");

struct {
  MAP_UINT(type, BPF_MAP_TYPE_HASH);
  MAP_UINT(max_entries, KITTY_MAX_TIMED_FLOWS);
  __u64* key;
  struct kitty_timed* value;
} timed SEC(".maps");

struct {
  MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
  MAP_UINT(max_entries, KITTY_MAX_ACCOUNTS);
  __u32* key;
  struct kitty_account* value;
} accounts SEC(".maps");

volatile struct kitty_settings settings = {.tick = 1, .jiffy_us = 4000};
// .bss: how many programs were executed; user space reads their records when it moves.
__u64 execs;

static const __u32 kRttBoundsUs[32] = {KITTY_RTT_BOUNDS_US};
static const struct kitty_flow kEmptyFlow = {};

INLINE void count_miss(__u32 which) {
  __u64* count = map_lookup(&misses, &which);
  if (count) *count += 1;
}

// The first bucket whose bound is >= us. The steps 16..1 reach every index of 0..KITTY_RTT_BOUND_COUNT (18).
INLINE __u32 bucket_of(__u32 us) {
  __u32 bucket = 0;
#pragma unroll
  for (__u32 step = 16; step; step >>= 1) {
    __u32 next = bucket + step;
    if (next <= KITTY_RTT_BOUND_COUNT && us > kRttBoundsUs[(next - 1) & 31]) bucket = next;
  }
  return bucket;
}

INLINE __u64 subflow_key(__u64 inode, __u32 hash) { return inode ^ (__u64)hash << 32; }

// The key of the socket's entry; 0 where the socket is not accepted yet, or orphaned. A subflow of an MPTCP
// socket either has a struct socket without a file, whose inode was given the number of the MPTCP socket's
// (mptcp_subflow_create_socket of net/mptcp/subflow.c), or refers to the MPTCP socket's own
// (mptcp_sock_graft).
INLINE __u64 key_of(struct sock* sk, const int direct) {
  struct socket* socket = GET(sk, sk_socket);
  if (!socket) return 0;
  struct file* file = GET(socket, file);
  struct sock* of_socket = GET(socket, sk);
  if (direct && file && of_socket == sk) {
    // The verifier knows `socket` as a struct socket only, not as the socket_alloc around it.
    struct inode* inode = file->f_inode;
    return inode ? inode->i_ino : 0;
  }
  __u64 inode = 0;
  probe_read_kernel(&inode, sizeof(unsigned long), &((struct socket_alloc*)socket)->vfs_inode.i_ino);
  if (file && of_socket == sk) return inode;
  return subflow_key(inode, GET(sk, __sk_common.skc_hash));
}

// 0 on a kernel without network namespaces (CONFIG_NET_NS), where nobody's is watched.
INLINE __u32 netns_of(struct sock* sk, const int direct) {
  if (!FIELD_EXISTS(sk->__sk_common.skc_net.net)) return 0;
  struct net* net = GET(sk, __sk_common.skc_net.net);
  return net ? GET(net, ns.inum) : 0;
}

INLINE void set_mapped(__u32* address, const __u32* ipv4) {
  address[0] = 0;
  address[1] = 0;
  address[2] = __builtin_bswap32(0x0000ffff);
  probe_read_kernel(&address[3], sizeof address[3], ipv4);
}

// A kernel without IPv6 has no such addresses either.
INLINE void read_addresses(__u32* local, __u32* remote, struct sock* sk) {
  const int direct = 0;
  if (FIELD_EXISTS(sk->__sk_common.skc_v6_daddr) && FIELD_EXISTS(sk->__sk_common.skc_v6_rcv_saddr) &&
      GET(sk, __sk_common.skc_family) == AF_INET6) {
    probe_read_kernel(local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
    probe_read_kernel(remote, 16, &sk->__sk_common.skc_v6_daddr);
  } else {
    set_mapped(local, &sk->__sk_common.skc_rcv_saddr);
    set_mapped(remote, &sk->__sk_common.skc_daddr);
  }
}

// Once per socket, so probe reads serve every hook.
INLINE void start_flow(struct kitty_flow* flow, struct sock* sk, __u32 hash) {
  const int direct = 0;
  __u32 resets = flow->hash ? flow->resets + 1 : flow->resets;
  __builtin_memset(flow, 0, sizeof *flow);
  flow->resets = resets;
  flow->hash = hash;
  flow->rack_mstamp = KITTY_RACK_UNKNOWN;
  flow->netns = netns_of(sk, 0);
  flow->local_port = GET(sk, __sk_common.skc_num);
  flow->remote_port = __builtin_bswap16(GET(sk, __sk_common.skc_dport));
  read_addresses(flow->local, flow->remote, sk);
}

// The owned entry of the socket, else the pending one of its watched namespace, else none.
struct found {
  struct kitty_flow* flow;
  int pending;
};

INLINE struct found find_flow(struct sock* sk, const int direct, const int create) {
  struct found found = {};
  __u64 key = key_of(sk, direct);
  if (key) found.flow = map_lookup(&owned, &key);
  if (!found.flow) {
    __u32 netns = netns_of(sk, direct);
    if (!map_lookup(&watched_netns, &netns)) return found;
    if (!key) {
      if (create) count_miss(KITTY_MISS_NO_INODE);
      return found;
    }
    found.pending = 1;
    found.flow = map_lookup(&pending, &key);
    if (!found.flow && create) {
      map_update(&pending, &key, &kEmptyFlow, BPF_NOEXIST);
      found.flow = map_lookup(&pending, &key);
      if (!found.flow) count_miss(KITTY_MISS_FULL);
    }
  }
  if (found.flow) {
    __u32 hash = GET(sk, __sk_common.skc_hash);
    if (found.flow->hash != hash) start_flow(found.flow, sk, hash);
  }
  return found;
}

// enum tcp_chrono of include/linux/tcp.h; chrono_stat[] begins with the first.
#define TCP_CHRONO_RWND_LIMITED 2

// As members of struct kitty_counters.
struct chronographs {
  __u32 busy_jiffies, rwnd_limited_jiffies;
};

INLINE int has_chronographs(struct tcp_sock* tp) {
  return FIELD_EXISTS(tp->chrono_stat) && FIELD_EXISTS(tp->chrono_start) && FIELD_EXISTS(tp->chrono_type);
}

// The closed intervals and the open one, in jiffies: tcp_get_info_chrono_stats() of net/ipv4/tcp.c.
INLINE struct chronographs read_chronographs(struct tcp_sock* tp, const int direct) {
  struct chronographs read;
  __u32 rwnd_limited = GET(tp, chrono_stat[TCP_CHRONO_RWND_LIMITED - 1]);
  __u32 busy = GET(tp, chrono_stat[0]) + rwnd_limited + GET(tp, chrono_stat[2]);
  __u64 type = 0;
  __u32 size = FIELD_BYTE_SIZE(tp->chrono_type);
  if (size > 8) size = 8;
  probe_read_kernel(&type, size, (void*)tp + FIELD_BYTE_OFFSET(tp->chrono_type));
  type = type << FIELD_LSHIFT(tp->chrono_type) >> FIELD_RSHIFT(tp->chrono_type);
  __u32 open = type ? (__u32)jiffies64() - GET(tp, chrono_start) : 0;
  read.busy_jiffies = busy + open;
  read.rwnd_limited_jiffies = rwnd_limited + (type == TCP_CHRONO_RWND_LIMITED ? open : 0);
  return read;
}

INLINE void snapshot_counters(struct kitty_counters* to, struct tcp_sock* tp, __u64 now_us,
                              const int direct) {
  __u32 have = 0;
  if (FIELD_EXISTS(tp->segs_out)) {
    to->segs_out = GET(tp, segs_out);
    have |= KITTY_HAVE_SEGS_OUT;
  }
  if (FIELD_EXISTS(tp->data_segs_out)) {
    to->data_segs_out = GET(tp, data_segs_out);
    have |= KITTY_HAVE_DATA_SEGS_OUT;
  }
  if (FIELD_EXISTS(tp->bytes_sent)) {
    to->bytes_sent = GET(tp, bytes_sent);
    have |= KITTY_HAVE_BYTES_SENT;
  }
  if (FIELD_EXISTS(tp->bytes_acked)) {
    to->bytes_acked = GET(tp, bytes_acked);
    have |= KITTY_HAVE_BYTES_ACKED;
  }
  if (FIELD_EXISTS(tp->bytes_received)) {
    to->bytes_received = GET(tp, bytes_received);
    have |= KITTY_HAVE_BYTES_RECEIVED;
  }
  if (FIELD_EXISTS(tp->total_retrans)) {
    to->total_retrans = GET(tp, total_retrans);
    have |= KITTY_HAVE_TOTAL_RETRANS;
  }
  if (has_chronographs(tp)) {
    const struct chronographs read = read_chronographs(tp, direct);
    to->busy_jiffies = read.busy_jiffies;
    to->rwnd_limited_jiffies = read.rwnd_limited_jiffies;
    have |= KITTY_HAVE_BUSY;
  }
  to->have = have;
  to->us = now_us;
}

INLINE struct tcp_sock* tcp_sock_of(struct sock* sk, const int direct) {
  return direct ? skc_to_tcp_sock(sk) : (struct tcp_sock*)sk;
}

#define COUNTERS_INTERVAL_US 1000

// CLOCK_MONOTONIC in microseconds, as TCP itself read it for this packet or the one before: a load where
// bpf_ktime_get_ns would be a third of the program's time.
INLINE __u64 packet_time_us(struct tcp_sock* tp, const int direct) {
  return FIELD_EXISTS(tp->tcp_mstamp) ? GET(tp, tcp_mstamp) : ktime_get_ns() / 1000;
}

// A socket that was disconnected (connect(2) to AF_UNSPEC) and connected with the same addresses and ports
// again has the hash it had, but its counters begin anew (tcp_disconnect of net/ipv4/tcp.c). Busy time goes
// on.
INLINE void start_again_if_reconnected(struct kitty_flow* flow, struct sock* sk, struct tcp_sock* tp,
                                       const int direct) {
  if (!FIELD_EXISTS(tp->segs_out) || !(flow->counters.have & KITTY_HAVE_SEGS_OUT)) return;
  if ((__s32)(GET(tp, segs_out) - flow->counters.segs_out) >= 0) return;
  __u64 shown = flow->rack_mstamp;
  start_flow(flow, sk, flow->hash);
  flow->rack_mstamp = shown;
}

INLINE void add_sample(struct found found, struct sock* sk, struct tcp_sock* tp, __u32 us, const int direct) {
  struct kitty_flow* flow = found.flow;
  if (found.pending) count_miss(KITTY_MISS_PENDING);
  __u64 now_us = packet_time_us(tp, direct);
  const int due = now_us - flow->counters.us >= COUNTERS_INTERVAL_US;
  if (due) start_again_if_reconnected(flow, sk, tp, direct);
  __u32 bucket = bucket_of(us);
  flow->rtt_sum_us += us;
  if (bucket < KITTY_RTT_BUCKETS) flow->buckets[bucket] += 1;
  __u32 tick = settings.tick;
  __u32 slot = tick & 1;
  if (flow->tick[slot] != tick) {
    flow->tick[slot] = tick;
    flow->tick_min_us[slot] = us;
  } else if (us < flow->tick_min_us[slot]) {
    flow->tick_min_us[slot] = us;
  }
  flow->last_us = now_us;
  if (due) snapshot_counters(&flow->counters, tp, now_us, direct);
}

INLINE int on_rtt(struct sock* sk, long us, const int direct) {
  if (us < 0) return 0;
  if (us > KITTY_MAX_RTT_US) {
    count_miss(KITTY_MISS_INSANE);
    return 0;
  }
  struct found found = find_flow(sk, direct, 1);
  struct tcp_sock* tp = found.flow ? tcp_sock_of(sk, direct) : 0;
  if (tp) add_sample(found, sk, tp, (__u32)us, direct);
  return 0;
}

// tcp_ack_update_rtt(sk, flag, seq_rtt_us, sack_rtt_us, ...) of net/ipv4/tcp_input.c takes the first of the
// two that is not negative. The third source, a difference of timestamps, is milliseconds coarse and left
// alone.
INLINE long first_rtt(long seq_rtt_us, long sack_rtt_us) {
  return seq_rtt_us >= 0 ? seq_rtt_us : sack_rtt_us;
}

// The first four argument registers, as struct pt_regs has them at a kprobe.
#if defined(__TARGET_ARCH_x86)  // arch/x86/include/uapi/asm/ptrace.h
struct probe_regs {
  __u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
};
#define ARG1(regs) ((regs)->rdi)
#define ARG2(regs) ((regs)->rsi)
#define ARG3(regs) ((regs)->rdx)
#define ARG4(regs) ((regs)->rcx)
#elif defined(__TARGET_ARCH_arm64)  // arch/arm64/include/uapi/asm/ptrace.h
struct probe_regs {
  __u64 regs[31];
};
#define ARG1(regs) ((regs)->regs[0])
#define ARG2(regs) ((regs)->regs[1])
#define ARG3(regs) ((regs)->regs[2])
#define ARG4(regs) ((regs)->regs[3])
#else
#error "kprobe.bpf.c: no argument registers known for this target"
#endif

SEC("kprobe/tcp_rtt_estimator") int kprobe_estimator(struct probe_regs* regs) {
  return on_rtt((struct sock*)ARG1(regs), (long)ARG2(regs), 0);
}

SEC("kprobe/tcp_ack_update_rtt") int kprobe_ack(struct probe_regs* regs) {
  return on_rtt((struct sock*)ARG1(regs), first_rtt((long)ARG3(regs), (long)ARG4(regs)), 0);
}

SEC("fentry/tcp_rtt_estimator") int fentry_estimator(__u64* args) {
  return on_rtt((struct sock*)args[0], (long)args[1], 1);
}

SEC("fentry/tcp_ack_update_rtt") int fentry_ack(__u64* args) {
  return on_rtt((struct sock*)args[0], first_rtt((long)args[2], (long)args[3]), 1);
}

// Up to where an entry that has just been started knows what tcp_probe shows: where `pending` left off if the
// socket was there, else as of now, for a sample that was there before is of any age.
INLINE __u64 shown_so_far(struct sock* sk, struct found found, __u64 mstamp) {
  if (found.pending) return mstamp;
  __u64 key = key_of(sk, 1);
  struct kitty_flow* kept = map_lookup(&pending, &key);
  return kept && kept->hash == found.flow->hash && kept->rack_mstamp != KITTY_RACK_UNKNOWN ? kept->rack_mstamp
                                                                                           : mstamp;
}

// Fires for each packet received, before its ACK is processed, so it shows the sample of the ACK before: late
// by one packet, and the same one again when data or a repeated ACK came. Degraded, but it needs no probe on
// a function.
SEC("tp_btf/tcp_probe") int probe_rack(__u64* args) {
  struct sock* sk = (struct sock*)args[0];
  struct tcp_sock* tp = skc_to_tcp_sock(sk);
  if (!tp) return 0;
  __u64 mstamp = tp->rack.mstamp;
  if (!mstamp && !key_of(sk, 1)) return 0;  // nothing was sampled, so nothing is missed
  struct found found = find_flow(sk, 1, 1);
  if (!found.flow) return 0;
  if (!mstamp) {  // of this connection; rtt_us may still be the one's before
    found.flow->rack_mstamp = 0;
    return 0;
  }
  if (found.flow->rack_mstamp == KITTY_RACK_UNKNOWN)
    found.flow->rack_mstamp = shown_so_far(sk, found, mstamp);
  if (found.flow->rack_mstamp == mstamp) return 0;
  found.flow->rack_mstamp = mstamp;
  add_sample(found, sk, tp, tp->rack.rtt_us, 1);
  return 0;
}

// The part of [from, to] in the silence.
INLINE __u32 overlap_us(struct kitty_silence* silence, __u64 from, __u64 to) {
  if (from < silence->begin_us) from = silence->begin_us;
  if (to > silence->end_us) to = silence->end_us;
  return to > from ? to - from : 0;
}

// The one before the latest `back` others, of `count`.
INLINE struct kitty_silence* latest_silence(struct kitty_account* account, __u64 count, __u32 back) {
  return &account->silences[((__u32)count - 1 - back) & (KITTY_SILENCES - 1)];
}

// How many silences one event may still tell of: those since the flow's event before.
#define LATEST_SILENCES 8

// When the process sent what is the oldest in flight, where nothing was in flight before (tcp_rate_skb_sent
// of net/ipv4/tcp_rate.c) and that was after the flow's event before; else 0.
INLINE __u64 opening_send_us(struct kitty_timed* flow, struct tcp_sock* tp, const int direct) {
  if (!FIELD_EXISTS(tp->first_tx_mstamp) || !GET(tp, packets_out)) return 0;
  __u64 sent_us = GET(tp, first_tx_mstamp);
  return sent_us > flow->event_us ? sent_us : 0;
}

// What the flow tells at an event of silences since its event before. Its busy time since then is the time
// just past: a flow gets idle by an event only. If that is all the time, it held the silence.
INLINE void tell_silences(struct kitty_account* account, struct kitty_timed* flow, struct tcp_sock* tp,
                          struct chronographs grown, __u64 now_us, const int direct) {
  const __u64 count = account->silence_count;
  const __u32 jiffy_us = settings.jiffy_us;
  const __u64 busy_from_us = now_us - (__u64)grown.busy_jiffies * jiffy_us;
  const __u64 slack_us = jiffy_us + KITTY_EVENT_GRAIN_US;
  const __u64 opened_us = opening_send_us(flow, tp, direct);
  __u32 rwnd_limited = grown.busy_jiffies ? grown.rwnd_limited_jiffies * 1000 / grown.busy_jiffies : 0;
  if (rwnd_limited > 1000) rwnd_limited = 1000;
  // What is in flight may wait for a delayed acknowledgement: a receiver that does not read sends it after 40
  // ms (TCP_DELACK_MIN of include/net/tcp.h), and its timer is up to three jiffies late. Where more was to be
  // sent, that is the receiver's doing; else nobody's.
  const int is_lossless = !GET(tp, lost_out) && !GET(tp, retrans_out);
  const int has_unsent = FIELD_EXISTS(tp->snd_nxt) && GET(tp, write_seq) != GET(tp, snd_nxt);
  const __u64 delayed_us = is_lossless ? GET(tp, rtt_min.s[0].v) + 40000 + 3 * jiffy_us : 0;
#pragma clang loop unroll(disable)
  for (__u32 back = 0; back < LATEST_SILENCES && back < count; ++back) {
    struct kitty_silence* silence = latest_silence(account, count, back);
    if (silence->end_us <= flow->event_us) break;
    if (busy_from_us <= silence->begin_us + slack_us) {
      const __u32 holder = silence->holder_count;
      const int is_delayed = silence->end_us - silence->begin_us <= delayed_us;
      if (is_delayed && !has_unsent) {
        silence->excused = 1;
        continue;
      }
      if (holder >= KITTY_HOLDERS) continue;
      silence->holders[holder].peer = flow->peer;
      silence->holders[holder].rwnd_limited = is_delayed ? 1000 : rwnd_limited;
      silence->holder_count = holder + 1;
    } else if (opened_us > silence->begin_us && opened_us < silence->end_us) {
      __u32 sent_us = opened_us - silence->begin_us;
      if (!silence->sent_us || sent_us < silence->sent_us) silence->sent_us = sent_us;
    }
  }
}

INLINE void forget_unread(struct kitty_account* account) {
#pragma unroll
  for (__u32 i = 0; i < KITTY_HOLDERS; ++i) account->unread[i].us = 0;
}

// Beyond so many peers at once the others' go unseen.
INLINE void add_unread(struct kitty_account* account, __u32 peer, __u32 us) {
#pragma unroll
  for (__u32 i = 0; i < KITTY_HOLDERS; ++i) {
    if (account->unread[i].us && account->unread[i].peer != peer) continue;
    account->unread[i].peer = peer;
    account->unread[i].us += us;
    return;
  }
}

INLINE void end_silence(struct kitty_account* account, struct kitty_timed* flow, __u64 now_us, __u8 event) {
  struct kitty_silence* silence = &account->silences[(__u32)account->silence_count & (KITTY_SILENCES - 1)];
  silence->begin_us = account->last_us;
  silence->end_us = now_us;
  silence->sent_us = 0;
  silence->holder_count = 0;
  silence->excused = 0;
  silence->peer = flow->peer;
  silence->event = event;
  __u32 unread_us = 0;
#pragma unroll
  for (__u32 i = 0; i < KITTY_HOLDERS; ++i) {
    if (event == KITTY_EVENT_DATA && account->unread[i].peer != flow->peer) continue;
    if (account->unread[i].us > unread_us) unread_us = account->unread[i].us;
  }
  if (flow->unread_from_us) {
    __u32 own_us = overlap_us(silence, flow->unread_from_us, now_us);
    if (own_us > unread_us) unread_us = own_us;
  }
  silence->unread_us = unread_us;
  __asm__ volatile("" ::: "memory");
  account->silence_count += 1;
}

INLINE void on_event(struct kitty_timed* flow, struct tcp_sock* tp, __u64 now_us, __u8 event,
                     const int direct) {
  const __u64 before_us = flow->event_us;
  if (before_us && now_us - before_us < KITTY_EVENT_GRAIN_US) return;
  struct kitty_account* account = map_lookup(&accounts, &flow->account);
  if (!account) return;
  struct chronographs read = {};
  if (has_chronographs(tp)) read = read_chronographs(tp, direct);
  const __u64 gap_us = now_us > account->last_us ? now_us - account->last_us : 0;
  if (gap_us >= KITTY_SILENCE_US) {
    end_silence(account, flow, now_us, event);
  } else if (gap_us >= KITTY_EVENT_GRAIN_US) {
    if (event == KITTY_EVENT_DATA)
      flow->receiving_us += gap_us;
    else
      flow->sending_us += gap_us;
  }
  if (gap_us >= KITTY_EVENT_GRAIN_US) {
    account->last_us = now_us;
    forget_unread(account);
    account->last_peer = flow->peer;
    account->last_event = event;
  }
  if (before_us && now_us - before_us >= KITTY_SILENCE_US) {
    struct chronographs grown = {read.busy_jiffies - flow->busy_jiffies,
                                 read.rwnd_limited_jiffies - flow->rwnd_limited_jiffies};
    tell_silences(account, flow, tp, grown, now_us, direct);
  }
  flow->busy_jiffies = read.busy_jiffies;
  flow->rwnd_limited_jiffies = read.rwnd_limited_jiffies;
  flow->event_us = now_us;
}

// For each packet received on an established connection, before it is processed (tcp_rcv_established of
// net/ipv4/tcp_input.c). tcp_mstamp is that of the packet before, so the clock is asked.
INLINE int on_receive(struct sock* sk, struct sk_buff* skb, const int direct) {
  __u64 key = key_of(sk, direct);
  struct kitty_timed* flow = key ? map_lookup(&timed, &key) : 0;
  if (!flow) return 0;
  struct tcp_sock* tp = tcp_sock_of(sk, direct);
  if (!tp) return 0;
  struct tcp_skb_cb* cb = (void*)skb + FIELD_BYTE_OFFSET(skb->cb);
  __u32 end_seq = 0, ack_seq = 0;
  probe_read_kernel(&end_seq, sizeof end_seq, &cb->end_seq);
  probe_read_kernel(&ack_seq, sizeof ack_seq, &cb->ack_seq);
  const __u32 received = GET(tp, rcv_nxt);
  const int data = (__s32)(end_seq - received) > 0;
  if (!data && (__s32)(ack_seq - GET(tp, snd_una)) <= 0) return 0;
  const __u64 now_us = ktime_get_ns() / 1000;
  if (data && (!flow->unread_from_us || GET(tp, copied_seq) == received)) flow->unread_from_us = now_us;
  on_event(flow, tp, now_us, data ? KITTY_EVENT_DATA : KITTY_EVENT_ACK, direct);
  return 0;
}

SEC("tp_btf/tcp_probe") int time_receive(__u64* args) {
  return on_receive((struct sock*)args[0], (struct sk_buff*)args[1], 1);
}

// The process has read of the socket: tcp_recvmsg_locked of net/ipv4/tcp.c, after it has moved copied_seq on.
SEC("tp_btf/tcp_rcv_space_adjust") int time_read(__u64* args) {
  const int direct = 1;
  struct sock* sk = (struct sock*)args[0];
  __u64 key = key_of(sk, direct);
  struct kitty_timed* flow = key ? map_lookup(&timed, &key) : 0;
  if (!flow || !flow->unread_from_us) return 0;
  struct tcp_sock* tp = tcp_sock_of(sk, direct);
  if (!tp) return 0;
  const __u64 now_us = ktime_get_ns() / 1000;
  __u64 from_us = flow->unread_from_us;
  flow->unread_from_us = GET(tp, copied_seq) == GET(tp, rcv_nxt) ? 0 : now_us;
  if (now_us - from_us < KITTY_EVENT_GRAIN_US) return 0;
  struct kitty_account* account = map_lookup(&accounts, &flow->account);
  if (!account) return 0;
  if (now_us - from_us >= KITTY_SILENCE_US) {
    const __u64 count = account->silence_count;
#pragma clang loop unroll(disable)
    for (__u32 back = 0; back < LATEST_SILENCES && back < count; ++back) {
      struct kitty_silence* silence = latest_silence(account, count, back);
      if (silence->end_us <= from_us) break;
      if (silence->event == KITTY_EVENT_DATA && silence->peer != flow->peer) continue;
      __u32 unread_us = overlap_us(silence, from_us, now_us);
      if (unread_us > silence->unread_us) silence->unread_us = unread_us;
    }
  }
  if (from_us < account->last_us) from_us = account->last_us;
  if (now_us > from_us) add_unread(account, flow->peer, now_us - from_us);
  return 0;
}

// A flow that gets no ACK shows its retransmits all the same. Never counts events: about two segments stand
// behind one.
SEC("raw_tp/tcp_retransmit_skb") int on_retransmit(__u64* args) {
  const int direct = 0;
  struct sock* sk = (struct sock*)args[0];
  struct tcp_sock* tp = (struct tcp_sock*)sk;
  struct kitty_flow* flow = find_flow(sk, 0, 0).flow;
  if (!flow || !FIELD_EXISTS(tp->total_retrans)) return 0;
  start_again_if_reconnected(flow, sk, tp, direct);
  flow->counters.total_retrans = GET(tp, total_retrans);
  flow->counters.have |= KITTY_HAVE_TOTAL_RETRANS;
  return 0;
}

// One number of a process; the kernel keeps them in an array behind its struct pid.
INLINE void describe_number(struct kitty_exec* exec, struct pid* pid, __u32 at) {
  const int direct = 0;
  if (at > GET(pid, level)) return;
  struct upid* upid = (void*)pid + FIELD_BYTE_OFFSET(pid->numbers) + at * sizeof(struct upid);
  struct pid_namespace* seen_from = GET(upid, ns);
  exec->seen_from[at].pid = GET(upid, nr);
  exec->seen_from[at].pid_namespace = GET(seen_from, ns.inum);
  exec->levels = at + 1;
}

// The new program's strings lie on its stack, where execve(2) has just written them, and it has not run yet:
// trace_sched_process_exec() in fs/exec.c, on the task itself.
SEC("raw_tp/sched_process_exec") int on_exec(__u64* args) {
  const int direct = 0;
  // Before 5.12 an atomic add gives nothing back. Two execs at once take one slot, and the other's stays as
  // it was: lost, and seen to be.
  __u64 number = *(volatile __u64*)&execs;
  __sync_fetch_and_add(&execs, 1);
  __u32 slot = number % KITTY_EXEC_SLOTS;
  struct kitty_exec* exec = map_lookup(&exec_log, &slot);
  if (!exec) return 0;
  struct task_struct* task = (struct task_struct*)args[0];
  struct task_struct* leader = GET(task, group_leader);
  struct mm_struct* mm = GET(task, mm);
  exec->number = 0;
  __asm__ volatile("" ::: "memory");
  exec->start_boottime_ns = GET(leader, start_boottime);
  exec->levels = 0;
  struct pid* pid = GET(leader, thread_pid);
  describe_number(exec, pid, 0);
  describe_number(exec, pid, 1);
  describe_number(exec, pid, 2);
  describe_number(exec, pid, 3);
  __u64 start = GET(mm, env_start);
  __u64 bytes = GET(mm, env_end) - start;
  exec->environ_bytes = bytes;
  __u32 kept = bytes < KITTY_EXEC_ENVIRON_BYTES ? bytes : KITTY_EXEC_ENVIRON_BYTES;
  if (kept > KITTY_EXEC_ENVIRON_BYTES || probe_read_user(exec->environ, kept, (void*)start) != 0) kept = 0;
  exec->kept_bytes = kept;
  __asm__ volatile("" ::: "memory");
  exec->number = number + 1;
  return 0;
}

// The process's number in the pid namespace of the current task, who is the one that reads the iterator: the
// kernel looked `pid` up there too (kernel/bpf/task_iter.c, init_seq_pidns).
INLINE __u32 tgid_for_reader(struct task_struct* leader) {
  const int direct = 0;
  struct task_struct* reader = (struct task_struct*)get_current_task();
  struct pid* of_reader = GET(reader, thread_pid);
  __u64 level = GET(of_reader, level);
  struct pid* pid = GET(leader, thread_pid);
  __u32 number = 0;
  probe_read_kernel(&number, sizeof number,
                    (void*)pid + FIELD_BYTE_OFFSET(pid->numbers) + level * sizeof(struct upid));
  return number;
}

INLINE void describe_process(struct kitty_socket_row* row, struct task_struct* task) {
  struct task_struct* leader = task->group_leader;
  row->start_boottime_ns = leader->start_boottime;
  row->tgid = tgid_for_reader(leader);
}

// A file keeps the credentials it was opened with (init_file of fs/file_table.c). Threads share theirs; a
// fork and an execve have new ones.
INLINE __u32 handed_flag(struct file* file, struct task_struct* task) {
  const int direct = 0;
  if (!FIELD_EXISTS(file->f_cred) || !FIELD_EXISTS(task->real_cred)) return 0;
  const struct cred* opener = GET(file, f_cred);
  if (opener == GET(task, real_cred)) return 0;
  return opener == GET(task->group_leader, real_cred) ? 0 : KITTY_ROW_HANDED;
}

INLINE __u64 inode_number(struct file* file) {
  const int direct = 1;
  struct inode* inode = GET(file, f_inode);
  return inode ? GET(inode, i_ino) : 0;
}

// Without the socket's lock, as net/tcp reads it (get_tcp4_sock of net/ipv4/tcp_ipv4.c). The time is taken
// last: nothing in the row is newer than it says.
INLINE void describe_socket(struct kitty_socket_row* row, struct sock* sk) {
  const int direct = 0;
  struct tcp_sock* tp = (struct tcp_sock*)sk;
  row->netns = netns_of(sk, direct);
  row->local_port = GET(sk, __sk_common.skc_num);
  row->remote_port = __builtin_bswap16(GET(sk, __sk_common.skc_dport));
  row->state = GET(sk, __sk_common.skc_state);
  row->hash = GET(sk, __sk_common.skc_hash);
  read_addresses(row->local, row->remote, sk);
  row->tx_queue_bytes = 0;
  if (row->state != TCP_LISTEN && FIELD_EXISTS(tp->write_seq) && FIELD_EXISTS(tp->snd_una))
    row->tx_queue_bytes = GET(tp, write_seq) - GET(tp, snd_una);
  snapshot_counters(&row->counters, tp, 0, direct);
  row->counters.us = ktime_get_ns() / 1000;
}

// What the MPTCP socket has taken and not yet given to any subflow.
INLINE __u64 not_yet_given(struct mptcp_sock* msk) {
  const int direct = 0;
  if (!FIELD_EXISTS(msk->write_seq) || !FIELD_EXISTS(msk->snd_nxt)) return 0;
  __u64 bytes = GET(msk, write_seq) - GET(msk, snd_nxt);
  return bytes <= 0xffffffff ? bytes : 0;
}

// One row for each subflow, read without the MPTCP socket's lock: one that goes meanwhile is a row of
// nonsense at worst, for one pass.
INLINE void list_subflows(struct seq_file* seq, struct kitty_socket_row* row, struct mptcp_sock* msk) {
  const int direct = 0;
  const __u64 inode = row->inode;
  __u64 unsent = not_yet_given(msk);
  struct list_head* head = (void*)msk + FIELD_BYTE_OFFSET(msk->conn_list);
  struct list_head* at = GET(head, next);
#pragma clang loop unroll(disable)
  for (int i = 0; i < KITTY_MAX_SUBFLOWS && at && at != head; ++i) {
    struct mptcp_subflow_context* subflow = 0;
    subflow = (void*)at - FIELD_BYTE_OFFSET(subflow->node);
    struct sock* sk = GET(subflow, tcp_sock);
    at = GET(at, next);
    if (!sk) continue;
    describe_socket(row, sk);
    row->inode = subflow_key(inode, row->hash);
    row->tx_queue_bytes += unsent;
    unsent = 0;
    seq_write(seq, row, sizeof *row);
  }
  if (!at || at == head) return;
  row->inode = inode;
  row->flags |= KITTY_ROW_UNSEEN;
  seq_write(seq, row, sizeof *row);
}

INLINE int is_stream_of(struct sock* sk, __u16 protocol) {
  const int direct = 1;
  const __u16 family = GET(sk, __sk_common.skc_family);
  return (family == AF_INET || family == AF_INET6) && GET(sk, sk_type) == SOCK_STREAM &&
         GET(sk, sk_protocol) == protocol;
}

// Called for each descriptor of the process, and once more, with neither task nor file, at the end. Rows that
// no longer fit into the iterator's buffer are taken back, all of one file, and the kernel calls again for
// the same file once user space has emptied it (kernel/bpf/bpf_iter.c, bpf_seq_read): bpf_seq_write's result
// needs no check, and rows are never cut by the buffer. Returning anything but 0 would end the run.
//
// The verifier of some kernels (6.18.44) does not trust `sk` of a socket, so that no helper takes it. What
// bpf_skc_to_tcp_sock looks at (net/core/filter.c) is looked at here; the rest is read with probe reads.
INLINE int list_file(__u64* args, const int subflows) {
  struct bpf_iter_meta* meta = (struct bpf_iter_meta*)args[0];
  struct task_struct* task = (struct task_struct*)args[1];
  struct file* file = (struct file*)args[3];  // args[2]: its number
  if (!task || !file) return 0;
  struct socket* socket = sock_from_file(file);
  struct sock* sk = socket ? socket->sk : 0;
  const int of_tcp = sk && is_stream_of(sk, IPPROTO_TCP);
  const int of_subflows = sk && is_stream_of(sk, IPPROTO_MPTCP);
  if (!of_tcp && !of_subflows && meta->seq_num) return 0;
  struct kitty_socket_row row = {};
  describe_process(&row, task);
  if (of_tcp || of_subflows) {
    row.inode = inode_number(file);
    row.flags = handed_flag(file, task);
  }
  if (of_subflows && subflows) {
    struct mptcp_sock* msk = (struct mptcp_sock*)sk;
    struct mptcp_subflow_context* subflow = 0;
    if (FIELD_EXISTS(msk->conn_list) && FIELD_EXISTS(subflow->node) && FIELD_EXISTS(subflow->tcp_sock)) {
      list_subflows(meta->seq, &row, msk);
      if (meta->seq_num) return 0;
      row.inode = 0;
      row.flags = 0;
    } else {
      row.flags |= KITTY_ROW_UNSEEN;
    }
  } else if (of_subflows) {
    row.flags |= KITTY_ROW_UNSEEN;
  }
  if (of_tcp) describe_socket(&row, sk);
  seq_write(meta->seq, &row, sizeof row);
  return 0;
}

SEC("iter/task_file") int list_sockets(__u64* args) { return list_file(args, 1); }

// For a kernel that refuses the one above: MPTCP sockets are said to be unseen.
SEC("iter/task_file") int list_tcp_sockets(__u64* args) { return list_file(args, 0); }

char gpl_license[] SEC("license") = "Dual MIT/GPL";
