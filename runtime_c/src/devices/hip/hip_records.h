/* For how many devices the AMD code of a library is made. */
#ifndef TILEC_HIP_RECORDS_H_
#define TILEC_HIP_RECORDS_H_

enum { MAX_HIP_DEVICES = 64 }; /* bits of loaded_code.ready */

#endif
