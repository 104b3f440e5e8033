/* For how many devices the Metal code of a library is made. */
#ifndef TILEC_METAL_RECORDS_H_
#define TILEC_METAL_RECORDS_H_

enum { MAX_METAL_DEVICES = 1 }; /* the system's own GPU */

#endif
