// One client's connection to the server (http/server.h): where it stands between two turns of the server's
// loop, and what is done with its socket. Owns the socket; holds a text while a response sends it. Not
// thread-safe.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "http/routes.h"

namespace kitty::http {

using Clock = std::chrono::steady_clock;

enum class State : uint8_t {
  idle,       // waits for a request's first byte
  reading,    // has some of a head
  sending,    // has a response to send
  lingering,  // has sent its last response; drops what still comes
};

struct Connection {
  Fd socket;
  uint64_t client = 0;  // client_of() its address
  State state = State::idle;
  Clock::time_point since;     // when the state began, or the client last took some of the response
  Clock::time_point deadline;  // when it must have ended
  std::string in;              // at most kMaxHeadBytes
  size_t searched = 0;         // of `in`, already known not to hold the end of a head
  Answer answer;
  size_t sent = 0;  // of answer.head, then answer.body
  size_t requests = 0;
  uint32_t interest = 0;     // the epoll events asked for
  bool runnable = false;     // has a whole turn's work left in `in`, which no event will announce
  bool only_taking = false;  // the client has ended its side, but not taken all of its response

  // Sends what it can of the rest of the answer: sendmsg(2)'s result, EAGAIN included.
  [[nodiscard]] ssize_t send() const;
  // Whether the client's side has acknowledged all that was sent. Linux 4.6 or newer; before, as if it had.
  [[nodiscard]] bool is_taken() const;
  // Frees the slot. What is not taken yet is left to the kernel, which may try for minutes.
  void close();
  // As close(), but what is not taken is dropped, which the client sees as a reset.
  void abort();
};

// A number for whoever is behind an address: equal for the same IPv4 address, mapped or not, and for the same
// /64 of IPv6, which one host has all of.
[[nodiscard]] uint64_t client_of(const sockaddr_storage& address);

}  // namespace kitty::http
