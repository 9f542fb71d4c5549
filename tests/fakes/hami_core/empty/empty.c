/* A library that does nothing, and has in its file what tells the newest layout of the region. */
const unsigned sizes[] = {2008952, 2008952, 2008952};
const char text[] = "postinit semaphore";
