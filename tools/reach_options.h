// How a command reaches agents on other hosts: the options of all that do.
#ifndef PENSTOCK_TOOLS_REACH_OPTIONS_H
#define PENSTOCK_TOOLS_REACH_OPTIONS_H

#include "mover/net.h"
#include "tools/options.h"

struct reach_options {
    const char *rsh, *remote_path; // NULL: ssh, penstock
    int family;                    // enum net_family
};

// Rows of an option table for the values of `type`, which has them in its member `reach`.
#define REACH_ROWS(type)                                                                          \
    {.name = "ipv4",                                                                              \
     .letter = '4',                                                                               \
     .kind = OPTION_FLAG,                                                                         \
     .at = offsetof(type, reach.family),                                                          \
     .value = NET_V4,                                                                             \
     .help = "IPv4 only"},                                                                        \
        {.name = "ipv6",                                                                          \
         .letter = '6',                                                                           \
         .kind = OPTION_FLAG,                                                                     \
         .at = offsetof(type, reach.family),                                                      \
         .value = NET_V6,                                                                         \
         .help = "IPv6 only"},                                                                    \
        {.name = "rsh",                                                                           \
         .letter = 'e',                                                                           \
         .kind = OPTION_TEXT,                                                                     \
         .at = offsetof(type, reach.rsh),                                                         \
         .arg = "COMMAND",                                                                        \
         .help = "what reaches HOST:PATH, its words parted by spaces; ssh unless given"},         \
    {                                                                                             \
        .name = "remote-path", .kind = OPTION_TEXT, .at = offsetof(type, reach.remote_path),      \
        .arg = "PROGRAM", .help = "penstock on the other host, when it is not found by that name" \
    }

#endif
