// What agents say to the coordinator, looked at where it is said.
#include "tests/sim/wraps.h"

void __wrap_mailbox_post(struct mailbox *m, const struct message *message)
{
    __real_mailbox_post(m, message);
}
