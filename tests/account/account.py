"""The account of a rank's time from its packets, TCP_INFO and receive queues: pure, no effects.

Shares of a window, which add up to 1: owing; waiting for q; held by receiver q; held by the path to q; receiving from
q; moving; open, which is the time since the last event at the window's end. account() says what falls under each.
"""

import bisect
import collections
import math

SILENCE_S = 0.02  # from here on a gap between two events is a silence
DELAYED_ACK_S = 0.052  # TCP_DELACK_MIN of include/net/tcp.h
TOLERANCE_S = 0.004  # of "throughout"
LEAST_OF_BYTES = 0.01  # of a rank's bytes that a counted flow carries
WELL_KNOWN_PORTS = 1024

# The rank's end and the other one.
Flow = collections.namedtuple("Flow", "address port peer peer_port")

# One TCP segment as a rank's interface saw it; `own`: sent by the rank. The account takes these in order of time.
Packet = collections.namedtuple("Packet", "time_s own flow length seq ack")

# What sock_diag(7) says of a socket at one instant. in_flight: segments; unread, unsent: bytes; the chronographs of
# TCP_INFO in seconds.
Sample = collections.namedtuple("Sample", "time_s unread unsent in_flight retransmits min_rtt_s busy_s rwnd_limited_s")

# The time from one event to the next: when, and [(begin, end, {(share, peer): weight}, rule)]. Weights add up to 1.
Gap = collections.namedtuple("Gap", "begin_s end_s parts")

# What is known of a rank at the window's end: for how long it has had no event, the peers to whom data is in flight or
# queued, its unread bytes, and how long ago it received and sent data; None where no packet of that was captured.
Open = collections.namedtuple("Open", "seconds in_flight unread received_ago_s sent_ago_s")

Account = collections.namedtuple("Account", "seconds shares rules open flows")


def after(left, right):
    """Whether a sequence number is beyond another."""
    return 0 < (left - right) & 0xFFFFFFFF < 1 << 31


def counted_flows(packets):
    """Those that carry a percent of the rank's bytes, and none of a well-known port."""
    carried = collections.Counter()
    for packet in packets:
        carried[packet[2]] += packet[3]
    job = {flow: count for flow, count in carried.items() if min(flow.port, flow.peer_port) >= WELL_KNOWN_PORTS}
    least = LEAST_OF_BYTES * sum(job.values())
    return {flow for flow, count in job.items() if count and count >= least}


class Track:
    """One flow's sequence numbers, packet by packet, and what follows from them."""

    def __init__(self):
        self.received = None  # the end of what was received
        self.acked = None  # up to where own data is acknowledged
        self.sent = None  # the end of what was sent
        self.outstanding = []  # [begin, end] of when own data was unacknowledged; the last end may be None
        self.repeated = []  # when own data was sent again

    def in_flight(self):
        return self.sent is not None and after(self.sent, self.acked)

    def send(self, time_s, length, seq):
        """Returns whether nothing was in flight before."""
        end = (seq + length) & 0xFFFFFFFF
        if self.acked is None:
            self.acked = seq
        idle = not self.in_flight()
        if self.sent is not None and not after(end, self.sent):
            self.repeated.append(time_s)
            return False
        self.sent = end
        if idle and self.in_flight():
            self.outstanding.append([time_s, None])
            return True
        return False

    def receive(self, time_s, length, seq, ack):
        """The event that the packet is: "data", "ack" or None."""
        advanced = self.acked is not None and after(ack, self.acked)
        if advanced or self.acked is None:
            was = self.in_flight() if self.acked is not None else False
            self.acked = ack
            if was and not self.in_flight():
                self.outstanding[-1][1] = time_s
        end = (seq + length) & 0xFFFFFFFF
        if length and (self.received is None or after(end, self.received)):
            self.received = end
            return "data"
        return "ack" if advanced else None

    def uncovered(self, begin_s, end_s):
        """How much of a span nothing was in flight for, by the packets: [(begin, end)]."""
        at = max(0, bisect.bisect_right(self.outstanding, begin_s, key=lambda span: span[0]) - 1)
        free, since = [], begin_s
        for left, right in self.outstanding[at:]:
            right = math.inf if right is None else right
            if left >= end_s:
                break
            if left > since:
                free.append((since, left))
            since = max(since, right)
        if since < end_s:
            free.append((since, end_s))
        return free


class Samples:
    """One socket's samples, in order of time."""

    def __init__(self, samples=()):
        self.samples = list(samples)
        self.times = [sample.time_s for sample in self.samples]

    def around(self, begin_s, end_s):
        """Those of a span; where there are none, the nearest before and after."""
        left, right = bisect.bisect_left(self.times, begin_s), bisect.bisect_right(self.times, end_s)
        return self.samples[left:right] or self.samples[max(0, left - 1) : left + 1]

    def value(self, name, time_s):
        """Between two samples in proportion."""
        if not self.samples:
            return 0
        right = bisect.bisect_right(self.times, time_s)
        if right in (0, len(self.samples)):
            return getattr(self.samples[min(right, len(self.samples) - 1)], name)
        one, other = self.samples[right - 1], self.samples[right]
        part = (time_s - one.time_s) / (other.time_s - one.time_s)
        return getattr(one, name) + part * (getattr(other, name) - getattr(one, name))

    def growth(self, name, begin_s, end_s):
        return max(0, self.value(name, end_s) - self.value(name, begin_s))

    def spans(self, begin_s, end_s, holds):
        """The parts of a span whose nearest sample `holds` for: [(begin, end)]."""
        left, right = bisect.bisect_left(self.times, begin_s), bisect.bisect_right(self.times, end_s)
        found = []
        for i in range(max(0, left - 1), min(len(self.samples), right + 1)):
            if not holds(self.samples[i]):
                continue
            since = (self.times[i - 1] + self.times[i]) / 2 if i else self.times[i]
            until = (self.times[i] + self.times[i + 1]) / 2 if i + 1 < len(self.times) else self.times[i]
            since, until = max(begin_s, since), min(end_s, until)
            if since < until:
                found.append((since, until))
        return found


def union(spans):
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def without(spans, taken):
    """What is left of spans without others: [(begin, end)]."""
    left = []
    for begin, end in spans:
        for taken_begin, taken_end in union(taken):
            if taken_end <= begin or taken_begin >= end:
                continue
            if taken_begin > begin:
                left.append((begin, taken_begin))
            begin = taken_end
        if begin < end:
            left.append((begin, end))
    return left


def length_of(spans):
    return sum(end - begin for begin, end in spans)


class Silence:
    """A gap of SILENCE_S or more of one rank: who is charged with it."""

    def __init__(self, begin_s, end_s, kind, peer):
        self.begin_s = begin_s
        self.end_s = end_s
        self.kind = kind  # of the event that ends it
        self.peer = peer

    def holds(self, track, samples):
        """Whether a flow had data in flight or queued throughout."""
        free = track.uncovered(self.begin_s, self.end_s)
        if length_of(free) > TOLERANCE_S:  # what waits for its first packet to leave is in TCP_INFO only
            free = without(free, samples.spans(self.begin_s, self.end_s, lambda s: s.in_flight or s.unsent))
        return length_of(free) <= TOLERANCE_S

    def delayed(self, track, samples):
        """Whether a delayed acknowledgement explains it."""
        known = samples.around(self.begin_s, self.end_s)
        if samples.growth("retransmits", self.begin_s, self.end_s) >= 1:
            return False
        repeated = bisect.bisect_right(track.repeated, self.end_s) - bisect.bisect_left(track.repeated, self.begin_s)
        min_rtt_s = known[-1].min_rtt_s if known else 0
        return not repeated and self.end_s - self.begin_s <= min_rtt_s + DELAYED_ACK_S

    def parts(self, tracks, samples, opened_s):
        """`opened_s`: the first own send inside it on a flow that had nothing in flight, or None."""
        none = Samples()
        held = [flow for flow, track in tracks.items() if self.holds(track, samples.get(flow, none))]
        delayed = {flow for flow in held if self.delayed(tracks[flow], samples.get(flow, none))}
        unsent = {
            flow for flow in held if any(s.unsent for s in samples.get(flow, none).around(self.begin_s, self.end_s))
        }
        holding = [flow for flow in held if flow not in delayed or flow in unsent]
        if holding:
            weights = collections.Counter()
            for flow in holding:
                of = samples.get(flow, none)
                busy = of.growth("busy_s", self.begin_s, self.end_s)
                limited = of.growth("rwnd_limited_s", self.begin_s, self.end_s)
                receiver = 1 if flow in delayed else min(1, limited / busy) if busy > 0 else 0
                weights["receiver", flow.peer] += receiver / len(holding)
                weights["path", flow.peer] += (1 - receiver) / len(holding)
            return [(self.begin_s, self.end_s, +weights, "held")]

        unread = union(
            span
            for flow in tracks
            if self.kind != "data" or flow.peer == self.peer
            for span in samples.get(flow, none).spans(self.begin_s, self.end_s, lambda sample: sample.unread)
        )
        parts = [(begin, end, OWING, "unread") for begin, end in unread]
        for begin, end, weights, rule in self._by_sends(opened_s, bool(held)):
            parts += [(*span, weights, rule) for span in without([(begin, end)], unread)]
        return parts

    def _by_sends(self, opened_s, excused):
        if opened_s is not None:
            yield self.begin_s, opened_s, OWING, "before an own send"
            if self.kind == "data" and self.end_s - opened_s >= SILENCE_S:
                yield opened_s, self.end_s, {("waiting", self.peer): 1.0}, "after an own send"
            elif self.end_s - opened_s >= SILENCE_S:
                yield opened_s, self.end_s, MOVING, "after an own send, until its ack"
            else:
                yield opened_s, self.end_s, MOVING, "after an own send, short"
        elif self.kind == "data":
            yield self.begin_s, self.end_s, {("waiting", self.peer): 1.0}, "until data"
        elif excused:
            yield self.begin_s, self.end_s, MOVING, "until a delayed ack"
        else:
            yield self.begin_s, self.end_s, OWING, "until an ack of what was sent a moment before"


OWING, MOVING = {("owing", None): 1.0}, {("moving", None): 1.0}


def gaps_of(packets, counted, samples, since_s, until_s):
    """Returns (gaps, tracks, when data was received last, when it was sent last, the last event)."""
    tracks = {flow: Track() for flow in counted}
    found = []  # (begin, end, kind, peer, the first opening send)
    weights = {}
    last_s, opened_s, received_s, sent_s = since_s, None, None, None
    for time_s, own, flow, length, seq, ack in packets:
        if time_s > until_s:
            break
        track = tracks.get(flow)
        if track is None:
            continue
        if own:
            if length:
                sent_s = time_s
                if track.send(time_s, length, seq) and opened_s is None:
                    opened_s = time_s
            continue
        kind = track.receive(time_s, length, seq, ack)
        if kind is None:
            continue
        if length:
            received_s = time_s
        found.append((last_s, time_s, kind, flow.peer, opened_s))
        last_s, opened_s = max(last_s, time_s), None
    gaps = []
    for begin, end, kind, peer, opened in found:
        if end - begin < SILENCE_S:
            name = ("receiving" if kind == "data" else "sending", peer)
            gaps.append(Gap(begin, end, [(begin, end, weights.setdefault(name, {name: 1.0}), name[0])]))
        else:
            gaps.append(Gap(begin, end, Silence(begin, end, kind, peer).parts(tracks, samples, opened)))
    return gaps, tracks, received_s, sent_s, last_s


def chronographs(flows, samples, begin_s, end_s):
    """{peer: (busy and not rwnd-limited, rwnd-limited)} in seconds, of each peer's busiest socket."""
    busiest = {}
    for flow in flows:
        if flow not in samples:
            continue
        busy, limited = (samples[flow].growth(name, begin_s, end_s) for name in ("busy_s", "rwnd_limited_s"))
        busiest[flow.peer] = max(busiest.get(flow.peer, (0, 0)), (busy, limited))
    return {peer: (max(0, busy - limited), min(busy, limited)) for peer, (busy, limited) in busiest.items()}


def account(packets, samples, begin_s, end_s, posted=False, split_s=None):
    """The account of one rank over a window, from its packets (from before the window on, in order of time) and
    {flow: Samples} of its sockets.

    A counted flow (counted_flows) has events: a packet that it receives and that brings new data or acknowledges new
    data. The time from one event to the next belongs to the flow and the kind of the latter: to receiving from q, or to
    sending to q. Where it is SILENCE_S or more it is a silence (Silence). What is sending to q is the path's to q as
    far as the busiest socket's busy time goes that is not rwnd-limited, less what silences took of it; then receiver
    q's as far as rwnd-limited time goes; the rest is moving.

    posted: a gap counts whole where it ends, as counters have it that are written then, and `open` is the difference of
    what was open at both ends. Otherwise it is cut at the window's begin. split_s: the sending time is split for each
    span of so many seconds by itself.
    """
    counted = counted_flows(packets)
    since_s = min(packets[0].time_s, begin_s) if packets else begin_s
    gaps, tracks, received_s, sent_s, last_s = gaps_of(packets, counted, samples, since_s, end_s)

    steps = max(1, round((end_s - begin_s) / split_s)) if split_s else 1
    step_s = (end_s - begin_s) / steps
    seconds = [collections.Counter() for _ in range(steps)]
    rules = collections.Counter()
    open_at_begin_s = 0
    for gap in gaps:
        if gap.end_s <= begin_s:
            continue
        if gap.begin_s < begin_s and posted:
            open_at_begin_s = begin_s - gap.begin_s
        for left, right, weights, rule in gap.parts:
            if posted:
                pieces = [(gap.end_s, right - left)]
            elif right <= begin_s:
                continue
            elif steps == 1:
                pieces = [(right, right - max(left, begin_s))]
            else:
                pieces = cut(max(left, begin_s), right, begin_s, step_s)
            for at_s, length in pieces:
                into = seconds[min(steps - 1, max(0, int((at_s - begin_s) / step_s)))]
                for name, weight in weights.items():
                    into[name] += length * weight
                rules[rule] += length
    if posted and last_s < begin_s:
        open_at_begin_s = begin_s - last_s
    total = collections.Counter()
    for step, into in enumerate(seconds):
        since_s = begin_s + step * step_s
        total += split_sending(into, chronographs(tracks, samples, since_s, since_s + step_s))

    in_flight = {flow.peer for flow, track in tracks.items() if track.in_flight()}
    latest = {flow: of.around(end_s, end_s)[:1] for flow, of in samples.items() if flow in tracks or not tracks}
    in_flight |= {flow.peer for flow, of in latest.items() for one in of if one.in_flight or one.unsent}
    opened = Open(
        end_s - last_s,
        sorted(in_flight),
        sum(one.unread for of in latest.values() for one in of),
        None if received_s is None else end_s - received_s,
        None if sent_s is None else end_s - sent_s,
    )
    total["open", None] = end_s - (last_s if posted else max(last_s, begin_s)) - open_at_begin_s
    window_s = end_s - begin_s
    shares = {name: value / window_s for name, value in total.items()}
    return Account(window_s, shares, {rule: value / window_s for rule, value in rules.items()}, opened, counted)


def cut(left, right, origin, step):
    """A span in pieces that each lie in one step: [(some time of it, length)]."""
    pieces = []
    for i in range(int((left - origin) / step), int((right - origin) / step) + 1):
        since, until = max(left, origin + i * step), min(right, origin + (i + 1) * step)
        if since < until:
            pieces.append(((since + until) / 2, until - since))
    return pieces


def split_sending(seconds, chronographs_of):
    """Sending to q becomes the path's, the receiver's and moving."""
    result = collections.Counter({name: value for name, value in seconds.items() if name[0] != "sending"})
    for (share, peer), value in seconds.items():
        if share != "sending":
            continue
        busy, limited = chronographs_of.get(peer, (0, 0))
        path = min(value, max(0, busy - seconds["path", peer]))
        receiver = min(value - path, max(0, limited - seconds["receiver", peer]))
        result["path", peer] += path
        result["receiver", peer] += receiver
        result["moving", None] += value - path - receiver
    return result


# What is shown

SHARES = ("owing", "waiting", "receiver", "path", "receiving", "moving", "unknown", "open")
SHOWN = 0.005
OPEN_SHOWN = 0.1


def name_of(share, peer):
    return share if peer is None else f"{share}({peer})"


def in_order(names):
    return sorted(names, key=lambda name: (SHARES.index(name[0]), str(name[1])))


def show(accounts):
    """A line for each rank: its shares in percent, without those that round to nothing."""
    lines = []
    for rank, of in enumerate(accounts):
        names = [name for name in in_order(of.shares) if abs(of.shares[name]) >= SHOWN]
        shown = ", ".join(f"{name_of(*name)} {100 * of.shares[name]:.0f}" for name in names)
        lines.append(f"rank {rank}: {shown}; sum {100 * sum(of.shares.values()):.1f}")
        if of.shares["open", None] >= OPEN_SHOWN:
            ago = [f"{what} {'unseen' if s is None else f'{s:.1f} s ago'}" for what, s in
                   (("received", of.open.received_ago_s), ("sent", of.open.sent_ago_s))]  # fmt: skip
            in_flight = ", ".join(map(str, of.open.in_flight)) or "nobody"
            lines.append(f"    open: {', '.join(ago)}, in flight to {in_flight}, {of.open.unread:.0f} bytes unread")
    return lines
