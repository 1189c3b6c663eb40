# SPDX-License-Identifier: Apache-2.0
# Makes a locale with a decimal comma and runs a program in it, with the comma as its last argument. Says "skipped" where no locale
# can be made.
#   cmake -DLOCALEDEF=... -DFOLDER=... -P locale_test.cmake -- PROGRAM [ARGUMENT...]
set(command "")
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 1 ${last})
    if(is_command)
        list(APPEND command "${CMAKE_ARGV${i}}")
    endif()
    if("${CMAKE_ARGV${i}}" STREQUAL "--")
        set(is_command TRUE)
    endif()
endforeach()
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND ${LOCALEDEF} -c -i de_DE -f UTF-8 ${FOLDER}/de_DE.UTF-8 RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
if(NOT EXISTS ${FOLDER}/de_DE.UTF-8/LC_NUMERIC) # without the sources of locales, localedef leaves an empty folder
    message("skipped: localedef makes no locale here (${status})")
    return()
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E env LOCPATH=${FOLDER} LC_ALL=de_DE.UTF-8 ${command} "," COMMAND_ERROR_IS_FATAL ANY)
